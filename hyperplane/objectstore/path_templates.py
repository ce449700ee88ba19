"""Output paths with fields for the index and number of shards."""

from __future__ import annotations

import re

from hyperplane.core.errors import Fault
from hyperplane.objectstore.redaction import redact_url

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_FIELD = re.compile(r"(idx|n|)(?::(0?[0-9]{0,2})d?)?", re.ASCII)
_ALLOWED = "{}, {idx} and {n}, with digits such as {:05d} or {idx:05d}; {{ and }} for braces"


def fill_template(template: str, idx: int, n: int | None) -> tuple[str, list[Fault]]:
    """Return a template with its fields replaced, and the faults of the template.

    Parameters
    ----------
    template : str
        A path or URL. ``{}`` is ``{idx}``, as in ``template.format(idx)``.
    idx : int
        The index of the shard.
    n : int or None
        The number of shards; None if unknown.

    Examples
    --------
    >>> fill_template("out_{}.csv", 3, 8)
    ('out_3.csv', [])
    """
    values = {"idx": idx, "n": n}
    faults: list[Fault] = []
    used: list[str] = []

    def replace_token(token: re.Match[str]) -> str:
        if token[0] in ("{{", "}}"):
            return token[0][0]
        field = _FIELD.fullmatch(token[1] or "") if token[1] is not None else None
        if field is None:
            faults.append(Fault("template", repr(token[0]), _ALLOWED))
            return ""
        used.append(field[1])
        value = values[field[1] or "idx"]
        return "" if value is None else format(value, f"{field[2] or ''}d")

    filled = _TOKEN.sub(replace_token, template)
    shown = repr(redact_url(template))[:200]
    if used.count("") > 1:
        allowed = "{} once, which is the index of the shard"
        faults.append(Fault("template", shown, allowed, "write {idx} and {n}"))
    if "n" in used and n is None:
        faults.append(Fault("n", "None", "the number of shards, as the template has {n}"))
    if not {"", "idx"}.intersection(used) and n != 1:
        allowed = "a template with {} or {idx}, so that no shard overwrites the file of another"
        faults.append(Fault("template", shown, allowed))
    return filled, [*faults, *_find_unsafe_path_faults(template, shown)]


def _find_unsafe_path_faults(template: str, shown: str) -> list[Fault]:
    """Return faults for parts of a template that could write a file to an unexpected location."""
    faults = []
    scheme, mark, rest = template.rpartition("://")
    if ".." in re.split(r"[/\\]", rest):
        allowed = "a path without '..', which leads out of its folder"
        faults.append(Fault("template", shown, allowed, "write the folder's own path"))
    if mark and scheme != "file":
        host = rest.partition("/")[0]
        if not host:
            faults.append(
                Fault("template", shown, f"{scheme}:// with a bucket or host, and a path")
            )
        if "{" in scheme + host:
            allowed = "one bucket or host for all shards"
            faults.append(Fault("template", shown, allowed, "put {idx} into the path after it"))
    return faults
