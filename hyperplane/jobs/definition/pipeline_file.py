"""Pipelines from files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hyperplane.errors import Fault, check
from hyperplane.jobs.definition.fault_collector import Entries, Report
from hyperplane.jobs.definition.files import Survey, is_file, is_path, survey
from hyperplane.jobs.definition.lenient_yaml import read_tolerantly
from hyperplane.jobs.definition.models import Pipeline, Step, placed
from hyperplane.jobs.definition.order import order_faults, resolve
from hyperplane.jobs.definition.records import attempt
from hyperplane.jobs.definition.tasks import Draft, read_task
from hyperplane.jobs.definition.wording import shown, spelled
from hyperplane.jobs.definition.yaml_text import (
    LARGEST_FILE,
    BadYaml,
    Items,
    Node,
    Pairs,
    Scalar,
    content,
)
from hyperplane.public_calls import check_call

#: Files that are a job of one step, by the end of their names.
SINGLE = {".sh": "bash", ".py": "python", ".ipynb": "notebook"}
_YAML = {".yaml", ".yml"}

_SHARED = ("name", "requirements", "working_dir", "job_type")
#: The keys under ``pipeline:``, each with the field of a pipeline that it fills.
KEYS = {**{name: name for name in _SHARED}, "tasks": "steps"}
_TOP = {"pipeline": "", **KEYS}


@check_call
def read_pipeline(
    path: str | os.PathLike[str], *, root: str | os.PathLike[str] | None = None
) -> Pipeline:
    """The pipeline that a file describes.

    Parameters
    ----------
    path : path
        A pipeline in YAML (``.yaml`` or ``.yml``); or a bash script (``.sh``), a Python script
        (``.py``) or a notebook (``.ipynb``), which is a job of one step.
    root : path, optional
        Folder that the paths in the file are relative to. Unless given it is the first of three
        that holds the most of the files: the git repository that the file is in, the file's own
        folder, and the current folder.

    Returns
    -------
    Pipeline
        ``warnings`` says what was read though it should be written in another way.

    Raises
    ------
    RequestError
        With every fault of the file, each with its line.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "count.sh").write_text("wc -l data.csv")
    >>> pipeline = read_pipeline(folder / "count.sh")
    >>> pipeline.name, pipeline.steps[0].kind, pipeline.steps[0].path
    ('count', 'bash', 'count.sh')
    """
    allowed = f"a file ending in {', '.join(sorted(_YAML | set(SINGLE)))}"
    for name, value in {"path": path, "root": root}.items():
        if not (name == "root" and value is None) and not is_path(value):
            wanted = allowed if name == "path" else "a folder"
            check([Fault(name, shown(repr(value)[:80]), wanted)])
    file = Path(path).absolute()
    if file.suffix.lower() not in _YAML | set(SINGLE):
        check([Fault("path", shown(str(path)), allowed)])
    if not is_file(file):
        check([Fault("path", shown(str(path)), "a file that is there")])
    if file.suffix.lower() in SINGLE:
        return _single(file, root)
    report = Report(file.name)
    try:
        tree = _tree(file, report)
    except BadYaml as error:
        fault = error.fault
        report.fault(int(fault.where), "", fault.asked, fault.allowed, fault.advice)
        report.check()
        raise
    return _pipeline(tree, file, root, report)


def _single(file: Path, root: str | os.PathLike[str] | None) -> Pipeline:
    """A job of one step, which is called like its file."""
    kind = SINGLE[file.suffix.lower()]
    values: dict[str, Any] = {"name": file.stem, "kind": kind, "path": str(file), "depends_on": ()}
    step, faults = attempt(Step, values)
    check(replace(fault, where=f"path: {fault.where}") for fault in faults)
    found = survey([values], {}, root, file.parent)
    check(replace(fault, where="path") for fault in found.faults)
    return _made({"name": file.stem}, [step], [()], found, found.warnings)


def _tree(file: Path, report: Report) -> Node:
    """The tree of a file; raises BadYaml."""
    limit = f"at most {LARGEST_FILE} bytes"
    try:
        with file.open("rb") as opened:
            data = opened.read(LARGEST_FILE + 1)
    except OSError as error:
        raise BadYaml(0, error.strerror or "an error", "a file that can be read") from None
    if len(data) > LARGEST_FILE:
        raise BadYaml(0, f"{file.stat().st_size} bytes", limit)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadYaml(line, "bytes that are no UTF-8", "text in UTF-8") from None
    tree, faults, warnings = read_tolerantly(text)
    for fault in faults:
        report.fault(int(fault.where), "", fault.asked, fault.allowed, fault.advice)
    for line, warning in warnings:
        report.warn(line, warning)
    return tree


def _pipeline(
    tree: Node, file: Path, root: str | os.PathLike[str] | None, report: Report
) -> Pipeline:
    entries = _below_pipeline(tree, report)
    shared = {
        name: value
        for name in _SHARED
        if name in entries.nodes and (value := content(entries.nodes[name], text=True)) is not None
    }
    _, faults = attempt(Pipeline, {**shared, "steps": (), "root": ""})
    for fault in faults:
        if fault.where in _SHARED:
            shared.pop(fault.where, None)
            line = entries.line_of(fault.where)
            report.fault(line, fault.where, fault.asked, fault.allowed, fault.advice)
    drafts = _drafts(entries, report)
    names = [
        draft.values.get("name", f"(task {index})").strip() for index, draft in enumerate(drafts)
    ]
    asked = [_said(draft) for draft in drafts]
    found = survey([draft.values for draft in drafts], shared, root, file.parent)
    for fault in [*order_faults(names, asked), *found.faults]:
        _locate(fault, entries, drafts, report)
    for warning in found.warnings:
        report.warn(0, warning)
    report.check()
    steps = [draft.step for draft in drafts]
    return _made(shared, steps, resolve(names, asked), found, report.warnings)


def _made(
    shared: dict[str, Any],
    steps: Sequence[Step | None],
    order: Sequence[tuple[str, ...]],
    found: Survey,
    warnings: tuple[str, ...],
) -> Pipeline:
    """The pipeline, when all faults have been raised."""
    resolved = tuple(
        step.model_copy(update={"depends_on": names})
        for step, names in zip(steps, order, strict=True)
        if step is not None
    )
    pipeline = Pipeline(**shared, steps=resolved, root=str(found.root), warnings=warnings)
    return placed(pipeline, found)


def _below_pipeline(tree: Node, report: Report) -> Entries:
    """The keys of the pipeline; those that are not indented under ``pipeline:`` too."""
    advice = "begin with the line 'pipeline:' and indent all else under it"
    if not isinstance(tree, Pairs):
        report.fault(tree.line, "", "no mapping", "one key, pipeline", advice)
        report.check()
        raise AssertionError  # check() has raised
    top = Entries(tree, _TOP, "", report)
    inner = top.nodes.pop("pipeline", None)
    if inner is None:
        report.fault(tree.line, "pipeline", "nothing", "a mapping", advice)
    if inner is None or (isinstance(inner, Scalar) and content(inner, text=True) is None):
        entries = Entries(Pairs(top.lines.get("pipeline", tree.line)), KEYS, "", report)
    elif isinstance(inner, Pairs):
        entries = Entries(inner, KEYS, "pipeline", report)
    else:
        report.fault(inner.line, "pipeline", "no mapping", "a mapping", advice)
        entries = Entries(Pairs(inner.line), KEYS, "", report)
    for key, node in top.nodes.items():
        line = top.lines[key]
        if key in entries.nodes:
            asked = f"again, first in line {entries.lines[key]}"
            report.fault(line, key, asked, "each key once")
            continue
        entries.nodes[key], entries.lines[key] = node, line
        if inner is not None:
            report.warn(line, f"the key {key} is not indented; indent it under 'pipeline:'")
    return entries


def _drafts(entries: Entries, report: Report) -> list[Draft]:
    tasks = entries.nodes.get("tasks")
    if not isinstance(tasks, Items) or not tasks.items:
        asked = "nothing" if tasks is None or isinstance(tasks, Items) else "no list"
        allowed = "a list with at least one task, each beginning with '- name:'"
        report.fault(entries.line_of("tasks"), "tasks", asked, allowed)
        return []
    read = [read_task(index, node, report) for index, node in enumerate(tasks.items)]
    return [draft for draft in read if draft is not None]


def _said(draft: Draft) -> tuple[str, ...] | None:
    """What a task says that it depends on; nothing in place of what is faulty."""
    if "depends_on" not in draft.entries.nodes:
        return None
    return tuple(name.strip() for name in draft.values.get("depends_on", ()))


def _locate(fault: Fault, entries: Entries, drafts: list[Draft], report: Report) -> None:
    """Report a fault of the order or the files with its line."""
    first, _, rest = fault.where.partition(".")
    if not first.isdecimal():
        line, place = entries.line_of(first), fault.where
    else:
        draft = drafts[int(first)]
        line, path = draft.place(replace(fault, where=rest))
        place = spelled(f"{draft.index}.{path}", "tasks")
    report.fault(line, place, fault.asked, fault.allowed, fault.advice)
