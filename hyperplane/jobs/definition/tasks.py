"""One task of a file as the fields of a step."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from hyperplane.errors import Fault
from hyperplane.jobs.definition.fault_collector import FaultCollector, MappingEntries
from hyperplane.jobs.definition.models import Step
from hyperplane.jobs.definition.records import validate_record
from hyperplane.jobs.definition.rules import CONTENT_FIELDS
from hyperplane.jobs.definition.wording import format_path, format_value
from hyperplane.jobs.definition.yaml_text import YamlMapping, YamlNode, to_python

#: What ``type`` may say, and the kind of step that it is.
TYPES = {
    "jupyter notebook": "notebook",
    "jupyter": "notebook",
    "notebook": "notebook",
    "ipynb": "notebook",
    "vscode notebook": "python",
    "vs code notebook": "python",
    "python script": "python",
    "python": "python",
    "py": "python",
    "js script": "javascript",
    "javascript": "javascript",
    "js": "javascript",
    "bash script": "bash",
    "bash": "bash",
    "command": "command",
}
#: The key that says what a step runs, by kind.
CONTENT_KEYS = {
    "notebook": "notebook_path",
    "python": "py_path",
    "javascript": "js_path",
    "bash": "bash_script_path",
    "command": "command",
}
_SAME_NAMES = (
    "name",
    "kernel",
    "depends_on",
    "working_dir",
    "port",
    "chunks",
    "foreach",
    "max_parallel",
    "retries",
    "timeout",
    "resources",
    "cluster",
    "env",
    "secrets",
    "output",
    "more_memory",
    "split",
)
#: The keys of a task, each with the field of a step that it fills.
TASK_KEYS = {
    "type": "kind",
    **{key: CONTENT_FIELDS[kind] for kind, key in CONTENT_KEYS.items()},
    "notebook_output_path": "output_path",
    **{name: name for name in _SAME_NAMES},
}
#: Keys under which all is text; elsewhere 8787 is a number and true a truth value.
_TEXT_KEYS = {"type", *CONTENT_KEYS.values(), "notebook_output_path", "name", "depends_on"}
_TEXT_KEYS |= {"kernel", "working_dir", "foreach", "env", "secrets", "output"}

_TYPES_WITHOUT_BLANKS = {name.replace(" ", ""): name for name in TYPES}


@dataclass(frozen=True)
class TaskDraft:
    """The fields of a step that are right by themselves, and where they stand in the file.

    Parameters
    ----------
    index : int
        Place of the task in the list, from 0.
    values : dict
        The fields.
    entries : Entries
        The keys of the task.
    keys : dict of str to str
        For each field the key that fills it.
    step : Step or None
        The step, if nothing is wrong with its fields.
    """

    index: int
    values: dict[str, Any]
    entries: MappingEntries
    keys: dict[str, str]
    step: Step | None

    def locate(self, fault: Fault) -> tuple[int, str]:
        """Line and path of a fault of this step; its ``where`` begins with a field."""
        field, *rest = fault.where.split(".")
        key = self.keys.get(field, field)
        return self.entries.line_of(key, rest), ".".join([key, *rest])


def read_task(index: int, node: YamlNode, collector: FaultCollector) -> TaskDraft | None:
    """The fields of one task.

    Parameters
    ----------
    index : int
        Its place in the list, from 0.
    node : Scalar, Items or Pairs
        What stands there.
    collector : Report
        What is wrong is added to it.

    Returns
    -------
    Draft or None
        None when it is no mapping.
    """
    where = f"tasks[{index}]"
    if not isinstance(node, YamlMapping):
        collector.add_fault(
            node.line, where, "no mapping", "name, type and more, one key to a line"
        )
        return None
    entries = MappingEntries(node, TASK_KEYS, where, collector)
    # Where the type is wrong, the path's key tells what to check the rest by.
    kind = _read_kind(entries, where, collector) or _guess_kind(entries)
    keys = {field: key for key, field in TASK_KEYS.items() if field not in {"path", "argv"}}
    keys |= {"path": CONTENT_KEYS.get(kind, "type"), "argv": "command"}
    values = {"kind": kind} if kind else {}
    silent = {"kind"} | (set() if kind else {"path", "argv"})
    for key, value in entries.nodes.items():
        if key == "type":
            continue
        if key in CONTENT_KEYS.values() and key != CONTENT_KEYS.get(kind):
            silent |= {"path", "argv"}
            _report_wrong_key(entries, key, kind, where, collector)
            continue
        read = to_python(value, text=key in _TEXT_KEYS)
        if read is not None:
            values[TASK_KEYS[key]] = read
        elif key == "depends_on":
            place, advice = f"{where}.{key}", "write [] to start at once, or leave the key out"
            collector.add_fault(entries.lines[key], place, "nothing", "a list of names", advice)
    step, faults = validate_record(Step, values)
    draft = TaskDraft(index, values, entries, keys, step)
    for fault in faults:
        field = fault.where.partition(".")[0]
        values.pop(field, None)
        if field not in silent:
            line, path = draft.locate(fault)
            place = format_path(f"{index}.{path}", "tasks")
            collector.add_fault(line, place, fault.asked, fault.allowed, fault.advice)
    return draft


def _read_kind(entries: MappingEntries, where: str, collector: FaultCollector) -> str:
    """The kind that ``type`` names, however it is spelled; empty when it names none."""
    known = ", ".join(map(repr, TYPES))
    written = to_python(entries.nodes["type"], text=True) if "type" in entries.nodes else None
    if not isinstance(written, str):
        asked = "nothing" if written is None else "no text"
        collector.add_fault(entries.line_of("type"), f"{where}.type", asked, f"one of {known}")
        return ""
    line = entries.lines["type"]
    spaced = " ".join(re.split(r"[\s_\-]+", written.strip().lower()))
    name = spaced if spaced in TYPES else _TYPES_WITHOUT_BLANKS.get(spaced.replace(" ", ""))
    if name is None:
        collector.add_fault(
            line,
            f"{where}.type",
            format_value(written),
            f"one of {known}",
            collector.suggest(written, TYPES),
        )
        return ""
    if name != written:
        collector.add_warning(line, f"the type {format_value(written)}; write {name}")
    return TYPES[name]


def _guess_kind(entries: MappingEntries) -> str:
    """The kind whose key for its path is there; empty when none is."""
    return next((kind for kind, key in CONTENT_KEYS.items() if key in entries.nodes), "")


def _report_wrong_key(
    entries: MappingEntries, key: str, kind: str, where: str, collector: FaultCollector
) -> None:
    right = CONTENT_KEYS[kind]
    allowed = f"{right} in a task of this type"
    advice = "take this key out" if right in entries.nodes else f"write {right}, or another type"
    collector.add_fault(
        entries.lines[key], f"{where}.{key}", "a key of another type", allowed, advice
    )
