"""Names of what shards write."""

from __future__ import annotations

import re
from typing import Any

from hyperplane.errors import Fault, check
from hyperplane.shards.identity import found
from hyperplane.stores.secrets import shown

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_FIELD = re.compile(r"(idx|n)(?::(0?[0-9]{0,2})d?)?", re.ASCII)
_ALLOWED = "{idx} and {n}, with digits such as {idx:05d}; {{ and }} for braces"


def output_path(template: str, idx: int | None = None, n: int | None = None) -> str:
    """The name of what one shard writes.

    Parameters
    ----------
    template : str
        A path or URL in which ``{idx}`` and ``{n}`` stand for the number of the shard and of all
        shards; ``{idx:05d}`` is at least five digits. ``{{`` and ``}}`` are braces. Nothing else
        is replaced.
    idx, n : int, optional
        The number of this shard, from 0, and how many there are; :func:`shard` says it when
        ``idx`` is not given.

    Returns
    -------
    str
        The path or URL; another one for each shard.

    Raises
    ------
    RequestError
        With everything that is wrong: another field, no ``{idx}`` although there are more shards
        than one, a ``..`` that leads out of the folder, a field before the first folder of a URL,
        a number out of range.

    Examples
    --------
    >>> output_path("gs://bucket/out_{idx:05d}.parquet", 7)
    'gs://bucket/out_00007.parquet'
    >>> output_path("out-{idx}-of-{n}.csv", 2, 8)
    'out-2-of-8.csv'
    """
    if not isinstance(template, str) or not template.strip():
        check([Fault("template", repr(template)[:80], "a path or URL")])
    share: tuple[int, int | None]
    if idx is not None and n is None:
        # Any count will do to check the number alone.
        (number, _), faults = found(idx, _more_than(idx), ("idx", "n"))
        share = (number, None)
    else:
        share, faults = found(idx, n, ("idx", "n"))
    values = {"idx": share[0], "n": share[1]}
    used: set[str] = set()

    def replaced(token: re.Match[str]) -> str:
        if token[0] in ("{{", "}}"):
            return token[0][0]
        field = _FIELD.fullmatch(token[1] or "")
        if field is None:
            faults.append(Fault("template", repr(token[0]), _ALLOWED))
            return ""
        used.add(field[1])
        value = values[field[1]]
        return "" if value is None else format(value, f"{field[2] or ''}d")

    made = _TOKEN.sub(replaced, template)
    asked = repr(shown(template))[:200]
    if "n" in used and share[1] is None:
        faults.append(Fault("n", "None", "how many shards there are, as {n} is in the template"))
    if "idx" not in used and share[1] != 1:
        allowed = "a template with {idx}, so that no shard writes over another's file"
        faults.append(Fault("template", asked, allowed))
    check([*faults, *_astray(template, asked)])
    return made


def _more_than(idx: Any) -> int:
    return idx + 1 if isinstance(idx, int) and idx >= 0 else 1


def _astray(template: str, asked: str) -> list[Fault]:
    """Parts of a template by which a file could land where nobody expects it."""
    faults = []
    scheme, mark, rest = template.rpartition("://")
    if ".." in re.split(r"[/\\]", rest):
        allowed = "a path without '..', which leads out of its folder"
        faults.append(Fault("template", asked, allowed, "write the folder out"))
    if mark and scheme != "file":
        host = rest.partition("/")[0]
        if not host:
            faults.append(Fault("template", asked, f"{scheme}://, a bucket or host, and a path"))
        if "{" in scheme + host:
            allowed = "one bucket or host for all shards"
            faults.append(Fault("template", asked, allowed, "put {idx} into the path after it"))
    return faults
