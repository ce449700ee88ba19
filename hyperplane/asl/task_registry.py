"""Tasks by ``Resource``, and the faults of a machine that cannot run with its tasks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hyperplane.asl.commands import Command
from hyperplane.asl.problems import format_location
from hyperplane.asl.strict_json import JsonLocation
from hyperplane.core.errors import Fault

Task = Callable[[Any], Any] | Command

_FUNCTION = re.compile(
    r"(?:arn:[^:]+:lambda:[^:]*:[^:]*:function:|[0-9]{12}:function:|function:)?"
    r"([A-Za-z0-9_-]+)(?::[^:]+)?"
)
_LAMBDA = re.compile(r"arn:[^:]+:lambda:[^:]*:[^:]*:function:([^:]+)(?::[^:]+)?")
_ACTIVITY = re.compile(r"arn:[^:]+:states:[^:]*:[^:]*:activity:([^:]+)")
_INVOKE = re.compile(r"arn:[^:]+:states:::lambda:invoke")


class TaskRegistry:
    """Tasks by ``Resource``, or by the name in the ARN of a function or an activity."""

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        self._tasks = dict(tasks)

    def find(self, resource: str) -> Task | None:
        """Return the task for a resource; None if there is none."""
        if resource in self._tasks:
            return self._tasks[resource]
        for pattern in (_LAMBDA, _ACTIVITY):
            if match := pattern.fullmatch(resource):
                return self._tasks.get(match.group(1))
        return None

    def find_function(self, name: object) -> Task | None:
        """Return the task for a ``FunctionName`` (name, ARN or end of an ARN); None if none."""
        match = _FUNCTION.fullmatch(name) if isinstance(name, str) else None
        if not match:
            return None
        return self._tasks.get(str(name)) or self._tasks.get(match.group(1))

    def is_lambda_invoke(self, resource: str) -> bool:
        """Whether a resource is ``lambda:invoke``, whose parameters name the function."""
        return resource not in self._tasks and bool(_INVOKE.fullmatch(resource))

    @property
    def names(self) -> str:
        """Names of all tasks, for messages."""
        return ", ".join(self._tasks) or "none"


def find_task_faults(tasks: object) -> Iterator[Fault]:
    """Yield the faults of the argument ``tasks``."""
    if not isinstance(tasks, Mapping):
        yield Fault("tasks", type(tasks).__name__, "a mapping of resources to tasks")
        return
    for name, task in tasks.items():
        at = f"tasks[{name!r}]"
        if not isinstance(name, str):
            yield Fault(at, "a key that is not a string", "a Resource or the name in it")
        if not isinstance(task, Command) and not callable(task):
            advice = "for a program use Command([...])"
            yield Fault(at, type(task).__name__, "a callable or a Command", advice)


def iterate_states(
    machine: Any, location: JsonLocation = ()
) -> Iterator[tuple[JsonLocation, dict[str, Any]]]:
    """Yield all states of a valid machine, including nested ones."""
    for name, state in machine["States"].items():
        inside = (*location, "States", name)
        yield inside, state
        for number, branch in enumerate(state.get("Branches", ())):
            yield from iterate_states(branch, (*inside, "Branches", number))
        for field in ("ItemProcessor", "Iterator"):
            if field in state:
                yield from iterate_states(state[field], (*inside, field))


def find_run_faults(document: Any, tasks: TaskRegistry) -> Iterator[Fault]:
    """Yield the faults of a valid machine that prevent its execution with these tasks."""
    for location, state in iterate_states(document):
        if state["Type"] == "Task":
            yield from _find_resource_faults(state, location, tasks)
        for name in ("HeartbeatSeconds", "HeartbeatSecondsPath"):
            if name in state:
                advice = "remove it; TimeoutSeconds limits the whole task"
                yield _fault(
                    location,
                    name,
                    state[name],
                    "no such field: heartbeats are not supported",
                    advice,
                )
        if "ResultWriter" in state:
            advice = "remove it; the results are the output of the state"
            yield _fault(
                location, "ResultWriter", "a writer", "no such field: it is not supported", advice
            )
        reader = state.get("ItemReader")
        if reader and tasks.find(reader["Resource"]) is None:
            inside = (*location, "ItemReader")
            yield _missing_task(inside, reader["Resource"], tasks)


def _find_resource_faults(
    state: dict[str, Any], location: JsonLocation, tasks: TaskRegistry
) -> Iterator[Fault]:
    resource = state["Resource"]
    if resource.endswith(".waitForTaskToken"):
        allowed = "a task without a token: callbacks with task tokens are not supported"
        yield _fault(location, "Resource", resource, allowed)
    elif tasks.is_lambda_invoke(resource):
        parameters = state.get("Parameters", {})
        name = parameters.get("FunctionName")
        if "FunctionName.$" not in parameters and tasks.find_function(name) is None:
            asked = "nothing" if name is None else name
            yield _missing_task((*location, "Parameters"), asked, tasks, "FunctionName")
    elif tasks.find(resource) is None:
        yield _missing_task(location, resource, tasks)


def _missing_task(
    location: JsonLocation, asked: object, tasks: TaskRegistry, name: str = "Resource"
) -> Fault:
    advice = "pass a task for it to run_machine, under the ARN or the name in it"
    return _fault(location, name, asked, f"one of the tasks: {tasks.names}", advice)


def _fault(
    location: JsonLocation, name: str, asked: object, allowed: str, advice: str = ""
) -> Fault:
    return Fault(format_location((*location, name)), str(asked), allowed, advice)
