"""Read the tasks of a pipeline file as fields of steps."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from hyperplane.core.errors import Fault
from hyperplane.jobs.definition.fault_collector import FaultCollector, MappingEntries
from hyperplane.jobs.definition.message_formatting import format_path, format_value
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.definition.step_rules import CONTENT_FIELDS, TRAIN_FIELDS
from hyperplane.jobs.definition.validated_record import validate_record
from hyperplane.jobs.definition.yaml_tree import YamlMapping, YamlNode, to_python

#: Accepted values of ``type``, with the kind of step.
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
    "train": "train",
}
#: Key with the program of a step, by kind.
CONTENT_KEYS = {
    "notebook": "notebook_path",
    "python": "py_path",
    "javascript": "js_path",
    "bash": "bash_script_path",
    "command": "command",
    "train": "module_name",
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
    "forecast",
    "env",
    "secrets",
    "output",
    "more_memory",
    "split",
    "gang",
    "step_functions",
    *TRAIN_FIELDS,
)
#: Keys of a task, with the field of a step that each sets.
TASK_KEYS = {
    "type": "kind",
    **{key: CONTENT_FIELDS[kind] for kind, key in CONTENT_KEYS.items()},
    "notebook_output_path": "output_path",
    **{name: name for name in _SAME_NAMES},
}
#: Keys whose values are always text; elsewhere 8787 is a number and true a boolean.
_TEXT_KEYS = {"type", *CONTENT_KEYS.values(), "notebook_output_path", "name", "depends_on"}
_TEXT_KEYS |= {
    "kernel",
    "working_dir",
    "forecast",
    "foreach",
    "env",
    "secrets",
    "output",
    "package_path",
    "job_dir",
    "args",
}

_TYPES_WITHOUT_BLANKS = {name.replace(" ", ""): name for name in TYPES}


@dataclass(frozen=True)
class TaskDraft:
    """Valid fields of a step, and their lines in the file.

    Parameters
    ----------
    index : int
        Index of the task in the list, from 0.
    values : dict
        The valid fields.
    entries : MappingEntries
        The keys of the task.
    keys : dict of str to str
        The key that sets each field.
    step : Step or None
        The step, if no field is faulty.
    """

    index: int
    values: dict[str, Any]
    entries: MappingEntries
    keys: dict[str, str]
    step: Step | None

    def locate(self, fault: Fault) -> tuple[int, str]:
        """Return line and path of a fault whose ``where`` begins with a field of this step."""
        field, *rest = fault.where.split(".")
        key = self.keys.get(field, field)
        return self.entries.line_of(key, rest), ".".join([key, *rest])


def read_task(index: int, node: YamlNode, collector: FaultCollector) -> TaskDraft | None:
    """Read the fields of one task; return None if it is not a mapping.

    ``index`` is its index in the list; faults and warnings are added to ``collector``.
    """
    where = f"tasks[{index}]"
    if not isinstance(node, YamlMapping):
        collector.add_fault(
            node.line, where, "not a mapping", "a mapping with name, type and other keys"
        )
        return None
    entries = MappingEntries(node, TASK_KEYS, where, collector)
    # If the type is invalid, the key of the path determines the checks.
    kind = _read_kind(entries, where, collector) or _guess_kind(entries)
    keys = {
        field: key for key, field in TASK_KEYS.items() if field not in {*CONTENT_FIELDS.values()}
    }
    keys |= {"path": CONTENT_KEYS.get(kind, "type"), "argv": "command"}
    keys["module_name"] = "module_name"
    contents = {*CONTENT_FIELDS.values()}
    values = {"kind": kind} if kind else {}
    unreported = {"kind"} | (set() if kind else contents)
    for key, value in entries.nodes.items():
        if key == "type":
            continue
        if key in CONTENT_KEYS.values() and key != CONTENT_KEYS.get(kind):
            unreported |= contents
            _report_wrong_key(entries, key, kind, where, collector)
            continue
        converted = to_python(value, text=key in _TEXT_KEYS)
        if converted is not None:
            values[TASK_KEYS[key]] = converted
        elif key == "depends_on":
            place, advice = f"{where}.{key}", "write [] to start at once, or omit the key"
            collector.add_fault(entries.lines[key], place, "nothing", "a list of names", advice)
    step, faults = validate_record(Step, values)
    draft = TaskDraft(index, values, entries, keys, step)
    for fault in faults:
        field = fault.where.partition(".")[0]
        values.pop(field, None)
        if field not in unreported:
            line, path = draft.locate(fault)
            collector.add(line, replace(fault, where=format_path(f"{index}.{path}", "tasks")))
    return draft


def _read_kind(entries: MappingEntries, where: str, collector: FaultCollector) -> str:
    """Return the kind that ``type`` names in any spelling; empty if it names none."""
    known = ", ".join(map(repr, TYPES))
    written = to_python(entries.nodes["type"], text=True) if "type" in entries.nodes else None
    if not isinstance(written, str):
        asked = "nothing" if written is None else "not text"
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
    """Return the kind whose path key is given; empty if there is none."""
    return next((kind for kind, key in CONTENT_KEYS.items() if key in entries.nodes), "")


def _report_wrong_key(
    entries: MappingEntries, key: str, kind: str, where: str, collector: FaultCollector
) -> None:
    right = CONTENT_KEYS[kind]
    allowed = f"{right} in a task of this type"
    advice = "remove this key" if right in entries.nodes else f"write {right}, or another type"
    collector.add_fault(
        entries.lines[key], f"{where}.{key}", "a key of another type", allowed, advice
    )
