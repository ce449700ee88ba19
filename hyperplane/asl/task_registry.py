"""Which task a ``Resource`` stands for on this machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hyperplane.asl.commands import Command
from hyperplane.asl.json_parser import JsonLocation
from hyperplane.asl.problems import format_location
from hyperplane.errors import Fault

Task = Callable[[Any], Any] | Command

_FUNCTION = re.compile(
    r"(?:arn:[^:]+:lambda:[^:]*:[^:]*:function:|[0-9]{12}:function:|function:)?"
    r"([A-Za-z0-9_-]+)(?::[^:]+)?"
)
_LAMBDA = re.compile(r"arn:[^:]+:lambda:[^:]*:[^:]*:function:([^:]+)(?::[^:]+)?")
_ACTIVITY = re.compile(r"arn:[^:]+:states:[^:]*:[^:]*:activity:([^:]+)")
_INVOKE = re.compile(r"arn:[^:]+:states:::lambda:invoke")


class TaskRegistry:
    """The tasks that a caller gives, by resource.

    Parameters
    ----------
    tasks : mapping of str to callable or Command
        A key is a ``Resource`` as the machine has it, or the name in the ARN of a function or
        of an activity.
    """

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        self._tasks = dict(tasks)

    def find(self, resource: str) -> Task | None:
        """The task for a resource; None when there is none."""
        if resource in self._tasks:
            return self._tasks[resource]
        for pattern in (_LAMBDA, _ACTIVITY):
            if found := pattern.fullmatch(resource):
                return self._tasks.get(found.group(1))
        return None

    def find_function(self, name: object) -> Task | None:
        """The task for a ``FunctionName``: a name, or an ARN or the end of one."""
        found = _FUNCTION.fullmatch(name) if isinstance(name, str) else None
        if not found:
            return None
        return self._tasks.get(str(name)) or self._tasks.get(found.group(1))

    def is_lambda_invoke(self, resource: str) -> bool:
        """Whether a resource calls the function that its parameters name."""
        return resource not in self._tasks and bool(_INVOKE.fullmatch(resource))

    @property
    def names(self) -> str:
        """All there are, for messages."""
        return ", ".join(self._tasks) or "none"


def find_task_faults(tasks: object) -> Iterator[Fault]:
    """What is wrong with the argument ``tasks``."""
    if not isinstance(tasks, Mapping):
        yield Fault("tasks", type(tasks).__name__, "a mapping of resources to tasks")
        return
    for name, task in tasks.items():
        at = f"tasks[{name!r}]"
        if not isinstance(name, str):
            yield Fault(at, "a key that is no text", "a Resource or the name in it, as text")
        if not isinstance(task, Command) and not callable(task):
            advice = "for a program: Command([...])"
            yield Fault(at, type(task).__name__, "a callable or a Command", advice)


def iterate_states(
    machine: Any, place: JsonLocation = ()
) -> Iterator[tuple[JsonLocation, dict[str, Any]]]:
    """All states of a machine that has no faults, those in other states too."""
    for name, state in machine["States"].items():
        inside = (*place, "States", name)
        yield inside, state
        for number, branch in enumerate(state.get("Branches", ())):
            yield from iterate_states(branch, (*inside, "Branches", number))
        for field in ("ItemProcessor", "Iterator"):
            if field in state:
                yield from iterate_states(state[field], (*inside, field))


def find_run_faults(document: Any, tasks: TaskRegistry) -> Iterator[Fault]:
    """What of a machine without faults cannot be run here, or not with these tasks."""
    for place, state in iterate_states(document):
        if state["Type"] == "Task":
            yield from _find_resource_faults(state, place, tasks)
        for name in ("HeartbeatSeconds", "HeartbeatSecondsPath"):
            if name in state:
                advice = "TimeoutSeconds bounds the whole task"
                yield _fault(
                    place, name, state[name], "nothing: tasks here send no heartbeats", advice
                )
        if "ResultWriter" in state:
            advice = "remove it; the results are the output of the state"
            yield _fault(
                place, "ResultWriter", "a writer", "nothing: there is no store here", advice
            )
        reader = state.get("ItemReader")
        if reader and tasks.find(reader["Resource"]) is None:
            inside = (*place, "ItemReader")
            yield _missing_task(inside, reader["Resource"], tasks)


def _find_resource_faults(
    state: dict[str, Any], place: JsonLocation, tasks: TaskRegistry
) -> Iterator[Fault]:
    resource = state["Resource"]
    if resource.endswith(".waitForTaskToken"):
        allowed = "a task that answers by itself: nobody here sends tokens back"
        yield _fault(place, "Resource", resource, allowed)
    elif tasks.is_lambda_invoke(resource):
        parameters = state.get("Parameters", {})
        named = parameters.get("FunctionName")
        if "FunctionName.$" not in parameters and tasks.find_function(named) is None:
            yield _missing_task((*place, "Parameters"), named, tasks, "FunctionName")
    elif tasks.find(resource) is None:
        yield _missing_task(place, resource, tasks)


def _missing_task(
    place: JsonLocation, asked: object, tasks: TaskRegistry, name: str = "Resource"
) -> Fault:
    advice = "give run_machine a task for it, under the ARN or the name in it"
    return _fault(place, name, asked, f"one of the tasks: {tasks.names}", advice)


def _fault(place: JsonLocation, name: str, asked: object, allowed: str, advice: str = "") -> Fault:
    return Fault(format_location((*place, name)), str(asked), allowed, advice)
