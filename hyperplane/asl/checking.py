"""Everything that is wrong with a machine, before it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hyperplane.asl import fields
from hyperplane.asl.clause_checks import (
    check_batcher,
    check_clauses,
    check_reader,
    check_rules,
    check_template,
)
from hyperplane.asl.json_parser import MAX_DEPTH, JsonLocation
from hyperplane.asl.json_values import copy_json_to_depth
from hyperplane.asl.problems import Problem, ProblemCollector, format_value
from hyperplane.errors import Fault
from hyperplane.public_calls import check_call

LONGEST_NAME = 80

_CLAUSES: dict[str, Callable[[ProblemCollector, Any, JsonLocation], None]] = {
    **dict.fromkeys(fields.TEMPLATES, check_template),
    "Retry": check_clauses,
    "Catch": check_clauses,
    "Choices": check_rules,
    "ItemReader": check_reader,
    "ItemBatcher": check_batcher,
}


@check_call
def check_machine(document: Mapping[str, Any]) -> list[Fault]:
    """Everything that is wrong with a machine.

    Parameters
    ----------
    document : mapping
        The machine, as JSON reads it.

    Returns
    -------
    list of Fault
        State by state; empty when nothing is wrong. States that nothing leads to
        and names that are there twice are faults too, though such a machine could run.

    Examples
    --------
    >>> machine = {"StartAt": "A", "States": {"A": {"Type": "Pass", "Next": "B"}}}
    >>> for fault in check_machine(machine):
    ...     print(fault)
    States.A.Next = "B": allowed is the name of a state beside it
    States = no state that ends it: allowed is one with "End": true, or of type Succeed or Fail
    """
    try:
        copy = copy_json_to_depth(document, MAX_DEPTH)
    except ValueError as error:
        return [Fault("machine", "a mapping", "JSON", str(error))]
    return [found.to_fault() for found in find_faults(copy)]


def find_faults(document: Any) -> list[Problem]:
    """The faults of a machine with their places."""
    checker = _Checker()
    if not checker.collector.check_object(document, ()):
        return checker.collector.problems
    if document.get("QueryLanguage", "JSONPath") != "JSONPath":
        checker.language(document["QueryLanguage"], ("QueryLanguage",))
        return checker.collector.problems
    checker.machine(document, (), fields.MACHINE)
    return checker.collector.problems


class _Checker:
    def __init__(self) -> None:
        self.collector = ProblemCollector()
        self.names: dict[str, JsonLocation] = {}

    def language(self, asked: Any, place: JsonLocation) -> None:
        advice = "machines of JSONata cannot be run here; write it with paths"
        self.collector.add(place, format_value(asked), '"JSONPath"', advice)

    def machine(self, machine: Any, place: JsonLocation, known: fields.Fields) -> None:
        """A machine, a branch or a processor: all three hold states."""
        if not self.collector.check_object(machine, place):
            return
        self.collector.check_fields(machine, place, known)
        self.collector.check_required(machine, place, ["StartAt", "States"])
        config = machine.get("ProcessorConfig")
        if isinstance(config, dict):
            self.collector.check_fields(
                config, (*place, "ProcessorConfig"), fields.PROCESSOR_CONFIG
            )
        states = machine.get("States")
        if not isinstance(states, dict):
            return
        self.name_all(states, (*place, "States"))
        for name, state in states.items():
            self.state(state, (*place, "States", name))
        self.graph(machine, states, place)

    def name_all(self, states: dict[str, Any], place: JsonLocation) -> None:
        for name in states:
            if not 1 <= len(name) <= LONGEST_NAME:
                asked = f"{len(name)} characters"
                self.collector.add(
                    (*place, name), asked, f"a name of 1 to {LONGEST_NAME} characters"
                )
            if name in self.names:
                allowed = "a name that is there once in the whole machine"
                self.collector.add((*place, name), format_value(name), allowed, doubt=True)
            self.names.setdefault(name, place)

    def state(self, state: Any, place: JsonLocation) -> None:
        if not self.collector.check_object(state, place):
            return
        kind = state.get("Type")
        if not isinstance(kind, str) or kind not in fields.STATES:
            asked = format_value(kind) if "Type" in state else "nothing"
            self.collector.add((*place, "Type"), asked, f"one of {', '.join(fields.STATES)}")
            return
        if state.get("QueryLanguage", "JSONPath") != "JSONPath":
            self.language(state["QueryLanguage"], (*place, "QueryLanguage"))
            return
        self.collector.check_fields(state, place, fields.STATES[kind])
        self.collector.check_required(state, place, fields.NEEDED.get(kind, ()))
        for group in fields.EXACTLY_ONE.get(kind, ()):
            self.collector.check_exactly_one(state, place, group)
        for group in fields.AT_MOST_ONE.get(kind, ()):
            self.collector.check_at_most_one(state, place, group)
        for name, check in _CLAUSES.items():
            if name in state and name in fields.STATES[kind]:
                check(self.collector, state[name], (*place, name))
        self.ways_out(state, place)
        self.special(state, place)

    def ways_out(self, state: dict[str, Any], place: JsonLocation) -> None:
        if "Next" not in fields.STATES[state["Type"]]:
            return
        if state.get("End") is True:
            self.collector.check_at_most_one(state, place, ("Next", "End"))
        elif "Next" not in state:
            self.collector.add((*place, "Next"), "nothing", 'the next state, or "End": true')

    def special(self, state: dict[str, Any], place: JsonLocation) -> None:
        """What holds for one type of state only."""
        kind = state["Type"]
        if kind == "Task":
            beat, limit = state.get("HeartbeatSeconds"), state.get("TimeoutSeconds")
            if type(beat) is int and type(limit) is int and beat >= limit:
                inside = (*place, "HeartbeatSeconds")
                self.collector.add(inside, f"{beat}", f"less than TimeoutSeconds, which is {limit}")
        elif kind == "Parallel" and "Branches" in state:
            for inside, branch in self.collector.read_objects(
                state["Branches"], (*place, "Branches")
            ):
                self.machine(branch, inside, fields.BRANCH)
        elif kind == "Map":
            for name in ("ItemProcessor", "Iterator"):
                if name in state:
                    known = fields.PROCESSOR if name == "ItemProcessor" else fields.BRANCH
                    self.machine(state[name], (*place, name), known)
            self.distributed(state, place)

    def distributed(self, state: dict[str, Any], place: JsonLocation) -> None:
        if mode_of(state) == "DISTRIBUTED":
            return
        for name in fields.DISTRIBUTED:
            if name in state:
                allowed = 'nothing, unless the ProcessorConfig says "Mode": "DISTRIBUTED"'
                self.collector.add((*place, name), format_value(state[name]), allowed)

    def graph(self, machine: dict[str, Any], states: dict[str, Any], place: JsonLocation) -> None:
        """Where states lead to, and whether anything leads to each and out of them."""
        start = machine.get("StartAt")
        if isinstance(start, str) and start not in states:
            self.collector.add(
                (*place, "StartAt"), format_value(start), "the name of a state in States"
            )
        for name, state in states.items():
            for inside, target in targets(state):
                if target not in states:
                    where = (*place, "States", name, *inside)
                    self.collector.add(where, format_value(target), "the name of a state beside it")
        inside = (*place, "States")
        if not any(_ends(state) for state in states.values()):
            allowed = 'one with "End": true, or of type Succeed or Fail'
            self.collector.add(inside, "no state that ends it", allowed)
        reached = _reached(states, start if isinstance(start, str) else "")
        for name in states:
            if name not in reached:
                allowed = "a state that StartAt leads to, by way of others or at once"
                self.collector.add((*inside, name), "unreachable", allowed, doubt=True)


def mode_of(state: Mapping[str, Any]) -> str:
    """``INLINE`` or ``DISTRIBUTED``."""
    config: Any = state.get("ItemProcessor")
    config = config.get("ProcessorConfig") if isinstance(config, dict) else None
    return str(config.get("Mode", "INLINE")) if isinstance(config, dict) else "INLINE"


def _ends(state: Any) -> bool:
    return isinstance(state, dict) and (
        state.get("Type") in ("Succeed", "Fail") or state.get("End") is True
    )


def _reached(states: dict[str, Any], start: str) -> set[str]:
    """The states that one can come to."""
    reached, todo = {start}, [start]
    while todo:
        state = states.get(todo.pop())
        new = {target for _, target in targets(state)} - reached
        reached |= new
        todo += new
    return reached


def targets(state: Any) -> Iterator[tuple[JsonLocation, str]]:
    """The names of states that a state leads to, and where it says so."""
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
