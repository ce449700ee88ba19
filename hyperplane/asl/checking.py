"""Static checks of a state machine: fields, nested fields and transitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hyperplane.asl import fields
from hyperplane.asl.field_types import PATH, TEXT
from hyperplane.asl.payload_templates import find_template_errors
from hyperplane.asl.problems import Problem, ProblemCollector, format_value
from hyperplane.asl.strict_json import MAX_DEPTH, JsonLocation, copy_json_to_depth
from hyperplane.core.errors import Fault
from hyperplane.core.public_calls import check_call, nearest

MAX_NAME_LENGTH = 80
#: Error name that matches all errors.
ALL = "States.ALL"


@check_call
def check_machine(document: Mapping[str, Any]) -> list[Fault]:
    """Find all faults of a state machine.

    Parameters
    ----------
    document : mapping
        The machine as parsed JSON.

    Returns
    -------
    list of Fault
        Faults, in no particular order; empty if there are none. Unreachable states and
        duplicate names are faults, although such a machine could run.

    Examples
    --------
    >>> machine = {"StartAt": "A", "States": {"A": {"Type": "Pass", "Next": "B"}}}
    >>> for fault in check_machine(machine):
    ...     print(fault)
    States.A.Next = "B": expected the name of a state at the same level; the states there are A
    States = no terminal state: expected one with "End": true, or of type Succeed or Fail
    """
    try:
        copy = copy_json_to_depth(document, MAX_DEPTH)
    except ValueError as error:
        return [Fault("machine", "a mapping", "JSON", str(error))]
    return [problem.to_fault() for problem in find_problems(copy)]


def find_problems(document: Any) -> list[Problem]:
    """Find the problems of a machine with their locations."""
    checker = _Checker()
    if not checker.collector.check_object(document, ()):
        return checker.collector.problems
    if document.get("QueryLanguage", "JSONPath") != "JSONPath":
        checker.report_language(document["QueryLanguage"], ("QueryLanguage",))
        return checker.collector.problems
    checker.check_machine(document, (), fields.MACHINE)
    return checker.collector.problems


class _Checker:
    def __init__(self) -> None:
        self.collector = ProblemCollector()
        self.names: set[str] = set()

    def report_language(self, asked: Any, location: JsonLocation) -> None:
        advice = "JSONata is not supported; use JSONPath"
        self.collector.add(location, format_value(asked), '"JSONPath"', advice)

    def check_machine(self, machine: Any, location: JsonLocation, known: fields.Fields) -> None:
        """Check a machine, a branch or a processor, which all contain states."""
        if not self.collector.check_object(machine, location):
            return
        self.collector.check_fields(machine, location, known)
        self.collector.check_required(machine, location, ["StartAt", "States"])
        config = machine.get("ProcessorConfig")
        if isinstance(config, dict):
            self.collector.check_fields(
                config, (*location, "ProcessorConfig"), fields.PROCESSOR_CONFIG
            )
        states = machine.get("States")
        if not isinstance(states, dict):
            return
        self.check_names(states, (*location, "States"))
        for name, state in states.items():
            self.check_state(state, (*location, "States", name))
        self.check_graph(machine, states, location)

    def check_names(self, states: dict[str, Any], location: JsonLocation) -> None:
        for name in states:
            if not 1 <= len(name) <= MAX_NAME_LENGTH:
                asked = f"{len(name)} characters"
                self.collector.add(
                    (*location, name), asked, f"a name of 1 to {MAX_NAME_LENGTH} characters"
                )
            if name in self.names:
                allowed = "a name that is unique in the whole machine"
                self.collector.add((*location, name), format_value(name), allowed, doubt=True)
            self.names.add(name)

    def check_state(self, state: Any, location: JsonLocation) -> None:
        if not self.collector.check_object(state, location):
            return
        kind = state.get("Type")
        if not isinstance(kind, str) or kind not in fields.STATES:
            asked = format_value(kind) if "Type" in state else "nothing"
            near = nearest(kind, fields.STATES) if isinstance(kind, str) else []
            advice = f"did you mean {near[0]}?" if near else ""
            allowed = f"one of {', '.join(fields.STATES)}"
            self.collector.add((*location, "Type"), asked, allowed, advice)
            return
        if state.get("QueryLanguage", "JSONPath") != "JSONPath":
            self.report_language(state["QueryLanguage"], (*location, "QueryLanguage"))
            return
        self.collector.check_fields(state, location, fields.STATES[kind])
        self.collector.check_required(state, location, fields.REQUIRED.get(kind, ()))
        for group in fields.EXACTLY_ONE.get(kind, ()):
            self.collector.check_exactly_one(state, location, group)
        for group in fields.AT_MOST_ONE.get(kind, ()):
            self.collector.check_at_most_one(state, location, group)
        for name, check in _NESTED_CHECKS.items():
            if name in state and name in fields.STATES[kind]:
                check(self.collector, state[name], (*location, name))
        self.check_transition(state, location)
        self.check_type_rules(state, location)

    def check_transition(self, state: dict[str, Any], location: JsonLocation) -> None:
        if "Next" not in fields.STATES[state["Type"]]:
            return
        if state.get("End") is True:
            self.collector.check_at_most_one(state, location, ("Next", "End"))
        elif "Next" not in state:
            self.collector.add((*location, "Next"), "nothing", 'the next state, or "End": true')

    def check_type_rules(self, state: dict[str, Any], location: JsonLocation) -> None:
        """Check the rules that apply to one type of state only."""
        kind = state["Type"]
        if kind == "Task":
            beat, limit = state.get("HeartbeatSeconds"), state.get("TimeoutSeconds")
            if type(beat) is int and type(limit) is int and beat >= limit:
                inside = (*location, "HeartbeatSeconds")
                self.collector.add(inside, f"{beat}", f"less than TimeoutSeconds, which is {limit}")
        elif kind == "Parallel" and "Branches" in state:
            for inside, branch in self.collector.read_objects(
                state["Branches"], (*location, "Branches")
            ):
                self.check_machine(branch, inside, fields.BRANCH)
        elif kind == "Map":
            for name in ("ItemProcessor", "Iterator"):
                if name in state:
                    known = fields.PROCESSOR if name == "ItemProcessor" else fields.BRANCH
                    self.check_machine(state[name], (*location, name), known)
            self.check_distributed_fields(state, location)

    def check_distributed_fields(self, state: dict[str, Any], location: JsonLocation) -> None:
        if processor_mode(state) == "DISTRIBUTED":
            return
        for name in fields.DISTRIBUTED:
            if name in state:
                allowed = 'no such field, unless ProcessorConfig has "Mode": "DISTRIBUTED"'
                self.collector.add((*location, name), format_value(state[name]), allowed)

    def check_graph(
        self, machine: dict[str, Any], states: dict[str, Any], location: JsonLocation
    ) -> None:
        """Check the targets of transitions, terminal states and unreachable states."""
        start = machine.get("StartAt")
        has_start = isinstance(start, str) and start in states
        if isinstance(start, str) and not has_start:
            self.collector.add_unknown_state(
                (*location, "StartAt"), start, "the name of a state in States", states
            )
        for name, state in states.items():
            for inside, target in _find_targets(state):
                if target not in states:
                    where = (*location, "States", name, *inside)
                    allowed = "the name of a state at the same level"
                    self.collector.add_unknown_state(where, target, allowed, states)
        inside = (*location, "States")
        if not any(_is_terminal(state) for state in states.values()):
            allowed = 'one with "End": true, or of type Succeed or Fail'
            self.collector.add(inside, "no terminal state", allowed)
        reached = find_reachable(states, str(start))
        for name in states if has_start else ():  # without a start no state is reachable
            if name not in reached:
                allowed = "a state that is reachable from StartAt"
                self.collector.add((*inside, name), "unreachable", allowed, doubt=True)


def processor_mode(state: Mapping[str, Any]) -> str:
    """Return the mode of a Map: ``INLINE`` or ``DISTRIBUTED``."""
    config: Any = state.get("ItemProcessor")
    config = config.get("ProcessorConfig") if isinstance(config, dict) else None
    return str(config.get("Mode", "INLINE")) if isinstance(config, dict) else "INLINE"


def _is_terminal(state: Any) -> bool:
    return isinstance(state, dict) and (
        state.get("Type") in ("Succeed", "Fail") or state.get("End") is True
    )


def find_reachable(states: dict[str, Any], start: str) -> set[str]:
    """Return the names of the states that are reachable from ``start``."""
    reached, todo = {start}, [start]
    while todo:
        state = states.get(todo.pop())
        new = {target for _, target in _find_targets(state)} - reached
        reached |= new
        todo += new
    return reached


def _find_targets(state: Any) -> Iterator[tuple[JsonLocation, str]]:
    """Yield the targets of a state's transitions, with their locations in the state."""
    if not isinstance(state, dict):
        return
    for name in ("Next", "Default"):
        if isinstance(state.get(name), str):
            yield (name,), state[name]
    for name in ("Choices", "Catch"):
        clauses = state.get(name)
        for number, clause in enumerate(clauses if isinstance(clauses, list) else ()):
            if isinstance(clause, dict) and isinstance(clause.get("Next"), str):
                yield (name, number, "Next"), clause["Next"]


def _check_choice_rules(collector: ProblemCollector, value: Any, location: JsonLocation) -> None:
    """Check the ``Choices`` of a Choice state."""
    for inside, rule in collector.read_objects(value, location):
        _check_choice_rule(collector, rule, inside, top=True)


def _check_choice_rule(
    collector: ProblemCollector, rule: dict[str, Any], location: JsonLocation, *, top: bool
) -> None:
    known: fields.Fields = {"Comment": TEXT}
    if top:
        known["Next"] = TEXT
        collector.check_required(rule, location, ["Next"])
    connectives = [name for name in fields.CONNECTIVES if name in rule]
    if connectives and "Variable" not in rule:
        collector.check_fields(
            rule, location, {**known, **dict.fromkeys(connectives, fields.NESTED)}
        )
        collector.check_at_most_one(rule, location, fields.CONNECTIVES)
        for name in connectives:
            _check_connective(collector, rule[name], (*location, name))
        return
    known |= {"Variable": PATH, **fields.COMPARATORS}
    collector.check_fields(rule, location, known)
    collector.check_required(rule, location, ["Variable"])
    comparators = [name for name in rule if name in fields.COMPARATORS]
    if len(comparators) != 1:
        asked = " and ".join(comparators) or "no comparison"
        collector.add(location, asked, "one comparison, such as StringEquals or IsPresent")


def _check_connective(collector: ProblemCollector, value: Any, location: JsonLocation) -> None:
    if location[-1] == "Not":
        if collector.check_object(value, location):
            _check_choice_rule(collector, value, location, top=False)
        return
    for inside, rule in collector.read_objects(value, location):
        _check_choice_rule(collector, rule, inside, top=False)


def _check_retry_catch(collector: ProblemCollector, value: Any, location: JsonLocation) -> None:
    """Check a ``Retry`` or a ``Catch``."""
    if value == []:  # allowed; has no effect
        return
    clauses = collector.read_objects(value, location)
    catching = location[-1] == "Catch"
    for inside, clause in clauses:
        collector.check_fields(clause, inside, fields.CATCHER if catching else fields.RETRIER)
        collector.check_required(clause, inside, ["ErrorEquals", *(["Next"] if catching else [])])
        if "ErrorEquals" in clause:
            last = inside[-1] == len(value) - 1
            _check_error_names(collector, clause["ErrorEquals"], (*inside, "ErrorEquals"), last)


def _check_error_names(
    collector: ProblemCollector, names: Any, location: JsonLocation, last: bool
) -> None:
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        collector.add(location, format_value(names), "a list of at least one error name")
    elif ALL in names and (len(names) > 1 or not last):
        collector.add(location, format_value(names), f"{ALL} alone, in the last entry")


def _check_payload_template(
    collector: ProblemCollector, value: Any, location: JsonLocation
) -> None:
    """Check a payload template."""
    if not collector.check_object(value, location):
        return
    for inside, asked, why in find_template_errors(value):
        collector.add(
            (*location, *inside), format_value(asked), "a path or an intrinsic function", why
        )


def _check_item_reader(collector: ProblemCollector, reader: Any, location: JsonLocation) -> None:
    """Check the ``ItemReader`` of a Map."""
    if not collector.check_object(reader, location):
        return
    collector.check_fields(reader, location, fields.READER)
    collector.check_required(reader, location, ["Resource"])
    if "Parameters" in reader:
        _check_payload_template(collector, reader["Parameters"], (*location, "Parameters"))
    config = reader.get("ReaderConfig", {})
    inside = (*location, "ReaderConfig")
    if not isinstance(config, dict):
        return
    collector.check_fields(config, inside, fields.READER_CONFIG)
    collector.check_at_most_one(config, inside, ("MaxItems", "MaxItemsPath"))
    _check_csv_headers(collector, config, inside)


def _check_csv_headers(
    collector: ProblemCollector, config: dict[str, Any], location: JsonLocation
) -> None:
    if config.get("InputType") != "CSV":
        for name in ("CSVHeaderLocation", "CSVHeaders", "CSVDelimiter"):
            if name in config:
                collector.add(
                    (*location, name),
                    format_value(config[name]),
                    'no such field, unless InputType is "CSV"',
                )
        return
    collector.check_required(config, location, ["CSVHeaderLocation"])
    headers = config.get("CSVHeaders")
    headers_required = config.get("CSVHeaderLocation") == "GIVEN"
    headers_valid = (
        isinstance(headers, list) and headers and all(isinstance(header, str) for header in headers)
    )
    if headers_required and not headers_valid:
        collector.add((*location, "CSVHeaders"), format_value(headers), "a list of column names")
    if not headers_required and headers is not None:
        collector.add(
            (*location, "CSVHeaders"),
            format_value(headers),
            'no such field, unless CSVHeaderLocation is "GIVEN"',
        )


def _check_item_batcher(collector: ProblemCollector, batcher: Any, location: JsonLocation) -> None:
    """Check the ``ItemBatcher`` of a Map."""
    if not collector.check_object(batcher, location):
        return
    collector.check_fields(batcher, location, fields.BATCHER)
    sizes = [name for name in fields.BATCHER if name != "BatchInput"]
    if not any(name in batcher for name in sizes):
        collector.add(location, "no size", f"one of {', '.join(sizes)}")
    for name in ("MaxItemsPerBatch", "MaxInputBytesPerBatch"):
        collector.check_at_most_one(batcher, location, (name, f"{name}Path"))
    if "BatchInput" in batcher:
        _check_payload_template(collector, batcher["BatchInput"], (*location, "BatchInput"))


#: Checks of nested fields, by the name of the field.
_NESTED_CHECKS: dict[str, Callable[[ProblemCollector, Any, JsonLocation], None]] = {
    **dict.fromkeys(fields.TEMPLATES, _check_payload_template),
    "Retry": _check_retry_catch,
    "Catch": _check_retry_catch,
    "Choices": _check_choice_rules,
    "ItemReader": _check_item_reader,
    "ItemBatcher": _check_item_batcher,
}
