"""Read pipelines from files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import check_call, nearest
from hyperplane.jobs.definition.dependencies import dependency_faults, resolve_dependencies
from hyperplane.jobs.definition.fault_collector import FaultCollector, MappingEntries
from hyperplane.jobs.definition.lenient_yaml import normalize_key, read_lenient
from hyperplane.jobs.definition.message_formatting import format_path, format_value
from hyperplane.jobs.definition.pipeline import Pipeline, with_relative_paths
from hyperplane.jobs.definition.referenced_files import PipelineFiles, find_files, is_file, is_path
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.definition.step_rules import memory_growth_faults
from hyperplane.jobs.definition.tasks import TaskDraft, read_task
from hyperplane.jobs.definition.validated_record import validate_record
from hyperplane.jobs.definition.yaml_tree import (
    MAX_FILE_BYTES,
    YamlError,
    YamlList,
    YamlMapping,
    YamlNode,
    YamlScalar,
    to_python,
)

#: Suffixes of files that are a pipeline of one step, with the kind of step.
SCRIPT_KINDS = {".sh": "bash", ".py": "python", ".ipynb": "notebook"}
_YAML_SUFFIXES = {".yaml", ".yml"}

_SHARED_KEYS = ("name", "requirements", "working_dir", "job_type")
#: Keys under ``pipeline:``, with the field of a pipeline that each sets.
PIPELINE_KEYS = {**{name: name for name in _SHARED_KEYS}, "tasks": "steps"}
_TOP_KEYS = {"pipeline": "", **PIPELINE_KEYS}


@check_call
def read_pipeline(
    path: str | os.PathLike[str], *, root: str | os.PathLike[str] | None = None
) -> Pipeline:
    """Read the pipeline that a file describes.

    Parameters
    ----------
    path : path
        A pipeline in YAML (``.yaml`` or ``.yml``); or a bash script (``.sh``), a Python script
        (``.py``) or a notebook (``.ipynb``), which becomes a pipeline of one step.
    root : path, optional
        Folder that the paths in the file are relative to; by default the folder that contains the
        most of the named files among the git repository of the file, the file's folder and the
        current folder.

    Returns
    -------
    Pipeline
        The pipeline. Its ``warnings`` are the deviations of the file that were accepted.

    Raises
    ------
    RequestError
        With every fault of the file and its line.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "count.sh").write_text("wc -l data.csv")
    >>> pipeline = read_pipeline(folder / "count.sh")
    >>> pipeline.name, pipeline.steps[0].kind, pipeline.steps[0].path
    ('count', 'bash', 'count.sh')
    """
    allowed = f"a file ending in {', '.join(sorted(_YAML_SUFFIXES | set(SCRIPT_KINDS)))}"
    for name, value in {"path": path, "root": root}.items():
        if not (name == "root" and value is None) and not is_path(value):
            wanted = allowed if name == "path" else "a folder"
            check([Fault(name, format_value(value), wanted)])
    file = Path(path).absolute()
    if file.suffix.lower() not in _YAML_SUFFIXES | set(SCRIPT_KINDS):
        check([Fault("path", format_value(str(path)), allowed)])
    if not is_file(file):
        check([Fault("path", format_value(str(path)), "an existing file")])
    if file.suffix.lower() in SCRIPT_KINDS:
        return _read_script(file, root)
    collector = FaultCollector(file.name)
    try:
        tree = _read_yaml(file, collector)
    except YamlError as error:
        collector.add(int(error.fault.where), replace(error.fault, where=""))
        collector.check()
        raise
    return _build_pipeline(tree, file, root, collector)


def _read_script(file: Path, root: str | os.PathLike[str] | None) -> Pipeline:
    """Return a pipeline of one step, named like its file."""
    kind = SCRIPT_KINDS[file.suffix.lower()]
    values: dict[str, Any] = {"name": file.stem, "kind": kind, "path": str(file), "depends_on": ()}
    step, faults = validate_record(Step, values)
    check(replace(fault, where=f"path: {fault.where}") for fault in faults)
    files = find_files([values], {}, root, file.parent)
    check(replace(fault, where="path") for fault in files.faults)
    return _assemble({"name": file.stem}, [step], [()], files, files.warnings)


def _read_yaml(file: Path, collector: FaultCollector) -> YamlNode:
    """Parse a YAML file to a tree; raises YamlError."""
    limit = f"at most {MAX_FILE_BYTES} bytes"
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise YamlError(0, error.strerror or "an error", "a file that can be read") from None
    if len(data) > MAX_FILE_BYTES:
        raise YamlError(0, f"{file.stat().st_size} bytes", limit)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise YamlError(line, "bytes that are not UTF-8", "UTF-8 text") from None
    tree, faults, warnings = read_lenient(text)
    for fault in faults:
        collector.add(int(fault.where), replace(fault, where=""))
    for line, warning in warnings:
        collector.add_warning(line, warning)
    return tree


def _build_pipeline(
    tree: YamlNode, file: Path, root: str | os.PathLike[str] | None, collector: FaultCollector
) -> Pipeline:
    entries = _pipeline_entries(tree, collector)
    shared = {
        name: value
        for name in _SHARED_KEYS
        if name in entries.nodes
        and (value := to_python(entries.nodes[name], text=True)) is not None
    }
    _, faults = validate_record(Pipeline, {**shared, "steps": (), "root": ""})
    for fault in faults:
        if fault.where in _SHARED_KEYS:
            shared.pop(fault.where, None)
            collector.add(entries.line_of(fault.where), fault)
    drafts = _read_tasks(entries, collector)
    names = [
        draft.values.get("name", f"(task {index})").strip() for index, draft in enumerate(drafts)
    ]
    dependencies = [_task_dependencies(draft) for draft in drafts]
    files = find_files([draft.values for draft in drafts], shared, root, file.parent)
    for fault in [
        *dependency_faults(names, dependencies),
        *memory_growth_faults([draft.values for draft in drafts]),
        *files.faults,
    ]:
        _report_fault(fault, entries, drafts, collector)
    for warning in files.warnings:
        collector.add_warning(0, warning)
    collector.check()
    steps = [draft.step for draft in drafts]
    return _assemble(
        shared, steps, resolve_dependencies(names, dependencies), files, collector.warnings
    )


def _assemble(
    shared: dict[str, Any],
    steps: Sequence[Step | None],
    dependencies: Sequence[tuple[str, ...]],
    files: PipelineFiles,
    warnings: tuple[str, ...],
) -> Pipeline:
    """Assemble the pipeline after all faults have been raised."""
    resolved = tuple(
        step.model_copy(update={"depends_on": names})
        for step, names in zip(steps, dependencies, strict=True)
        if step is not None
    )
    pipeline = Pipeline(**shared, steps=resolved, root=str(files.root), warnings=warnings)
    return with_relative_paths(pipeline, files)


def _pipeline_entries(tree: YamlNode, collector: FaultCollector) -> MappingEntries:
    """Return the keys of the pipeline, including those not indented under ``pipeline:``."""
    advice = "begin with the line 'pipeline:' and indent everything else under it"
    if not isinstance(tree, YamlMapping):
        collector.add_fault(
            tree.line, "", "not a mapping", "a mapping with the key pipeline", advice
        )
        collector.check()
        raise AssertionError  # check() has raised
    top = MappingEntries(_with_pipeline_key(tree, collector), _TOP_KEYS, "", collector)
    inner = top.nodes.pop("pipeline", None)
    if inner is None:
        collector.add_fault(tree.line, "pipeline", "nothing", "a mapping", advice)
    if inner is None or (isinstance(inner, YamlScalar) and to_python(inner, text=True) is None):
        entries = MappingEntries(
            YamlMapping(top.lines.get("pipeline", tree.line)), PIPELINE_KEYS, "", collector
        )
    elif isinstance(inner, YamlMapping):
        entries = MappingEntries(inner, PIPELINE_KEYS, "pipeline", collector)
    else:
        collector.add_fault(inner.line, "pipeline", "not a mapping", "a mapping", advice)
        entries = MappingEntries(YamlMapping(inner.line), PIPELINE_KEYS, "", collector)
    for key, node in top.nodes.items():
        line = top.lines[key]
        if key in entries.nodes:
            collector.add_fault(line, key, "", f"repeated; first in line {entries.lines[key]}")
            continue
        entries.nodes[key], entries.lines[key] = node, line
        if inner is not None:
            collector.add_warning(
                line, f"the key {key} is not indented; indent it under 'pipeline:'"
            )
    return entries


def _with_pipeline_key(tree: YamlMapping, collector: FaultCollector) -> YamlMapping:
    """Return the file with the key ``pipeline`` in place of a misspelled one, which is a fault.

    Otherwise all that is below it would be missing, too.
    """
    known = {key: normalize_key(key) for key in tree.values}
    misspelled = [
        key
        for key, normalized in known.items()
        if normalized not in _TOP_KEYS
        and isinstance(tree.values[key], YamlMapping)
        and nearest(normalized, ["pipeline"])
    ]
    if len(misspelled) != 1 or "pipeline" in known.values():
        return tree
    (wrong,) = misspelled
    collector.add_unknown_key(
        tree.key_lines[wrong], wrong, known[wrong], tree.values[wrong], ["pipeline"]
    )

    def rename(key: str) -> str:
        return "pipeline" if key == wrong else key

    return YamlMapping(
        tree.line,
        {rename(key): node for key, node in tree.values.items()},
        {rename(key): line for key, line in tree.key_lines.items()},
    )


def _read_tasks(entries: MappingEntries, collector: FaultCollector) -> list[TaskDraft]:
    tasks = entries.nodes.get("tasks")
    if not isinstance(tasks, YamlList) or not tasks.items:
        asked = "not a list" if tasks is not None else "nothing"
        asked = "an empty list" if isinstance(tasks, YamlList) else asked
        allowed = "a list with at least one task, each beginning with '- name:'"
        collector.add_fault(entries.line_of("tasks"), "tasks", asked, allowed)
        return []
    drafts = [read_task(index, node, collector) for index, node in enumerate(tasks.items)]
    return [draft for draft in drafts if draft is not None]


def _task_dependencies(draft: TaskDraft) -> tuple[str, ...] | None:
    """Return the dependencies of a task: None without the key, empty if its value is faulty."""
    if "depends_on" not in draft.entries.nodes:
        return None
    return tuple(name.strip() for name in draft.values.get("depends_on", ()))


def _report_fault(
    fault: Fault, entries: MappingEntries, drafts: list[TaskDraft], collector: FaultCollector
) -> None:
    """Report a fault of dependencies or files with its line."""
    first, _, rest = fault.where.partition(".")
    if not first.isdecimal():
        line, place = entries.line_of(first), fault.where
    else:
        draft = drafts[int(first)]
        line, path = draft.locate(replace(fault, where=rest))
        place = format_path(f"{draft.index}.{path}", "tasks")
    collector.add(line, replace(fault, where=place))
