"""Tasks by ``Resource``, and the faults of a machine that cannot run with its tasks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hyperplane.asl.batch_jobs import BatchJobs
from hyperplane.asl.checking import find_reachable
from hyperplane.asl.commands import Command
from hyperplane.asl.problems import format_location
from hyperplane.asl.strict_json import JsonLocation
from hyperplane.core.errors import Fault

Task = Callable[[Any], Any] | Command | BatchJobs

_FUNCTION = re.compile(
    r"(?:arn:[^:]+:lambda:[^:]*:[^:]*:function:|[0-9]{12}:function:|function:)?"
    r"([A-Za-z0-9_-]+)(?::[^:]+)?"
)
_LAMBDA = re.compile(r"arn:[^:]+:lambda:[^:]*:[^:]*:function:([^:]+)(?::[^:]+)?")
_ACTIVITY = re.compile(r"arn:[^:]+:states:[^:]*:[^:]*:activity:([^:]+)")
_INVOKE = re.compile(r"arn:[^:]+:states:::lambda:invoke")
_SERVICE = re.compile(r"arn:[^:]+:states:::([a-z0-9:-]+:[A-Za-z0-9]+)(?:\..*)?")
#: Action of a service -> where its parameters have the name of what runs.
_NAMES_IN_PARAMETERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "batch:submitJob": (("JobName",), ("JobDefinition",)),
    "glue:startJobRun": (("JobName",),),
    "elasticmapreduce:addStep": (("Step", "Name"),),
    "emr-serverless:startJobRun": (("Name",),),
    "states:startExecution": (("StateMachineArn",),),
}
#: The last part of an ARN, such as "clean" of ".../job-definition/clean:3".
_LAST_NAME = re.compile(r"(?:arn:.*[:/])?([A-Za-z0-9._-]+?)(?::[0-9]+)?")


class TaskRegistry:
    """Tasks by ``Resource``, by the name of what a state runs, or by the name of the state."""

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        self._tasks = dict(tasks)

    def find(self, resource: str, state: str = "", parameters: Any = None) -> Task | None:
        """Return the task for a resource; None if there is none.

        Many states share the resource of a service, such as ``batch:submitJob.sync``: the name of
        the job and that of the state come first. Otherwise the resource comes first.
        """
        names = [*_names_of(resource, parameters), state]
        keys = [*names, resource] if _SERVICE.fullmatch(resource) else [resource, *names]
        return next((self._tasks[key] for key in keys if key in self._tasks), None)

    def find_function(self, name: object, state: str = "") -> Task | None:
        """Return the task for a ``FunctionName`` (name, ARN or end of an ARN); None if none."""
        match = _FUNCTION.fullmatch(name) if isinstance(name, str) else None
        keys = [str(name), match.group(1), state] if match else [state]
        return next((self._tasks[key] for key in keys if key in self._tasks), None)

    def is_lambda_invoke(self, resource: str) -> bool:
        """Whether a resource is ``lambda:invoke``, whose parameters name the function."""
        return resource not in self._tasks and bool(_INVOKE.fullmatch(resource))

    @property
    def names(self) -> str:
        """Names of all tasks, for messages."""
        return ", ".join(self._tasks) or "none"


def _names_of(resource: str, parameters: Any) -> list[str]:
    """Return the names of what a state runs: in the ARN, or in the parameters of a service."""
    for pattern in (_LAMBDA, _ACTIVITY):
        if match := pattern.fullmatch(resource):
            return [match.group(1)]
    match = _SERVICE.fullmatch(resource)
    names: list[str] = []
    for path in _NAMES_IN_PARAMETERS.get(match.group(1), ()) if match else ():
        value = parameters
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, str):
            last = _LAST_NAME.fullmatch(value)
            names += [value, last.group(1)] if last else [value]
    return names


def _is_named_at_run_time(resource: str, parameters: Any) -> bool:
    """Whether a path in the parameters has the name of what a service runs."""
    match = _SERVICE.fullmatch(resource)
    for path in _NAMES_IN_PARAMETERS.get(match.group(1), ()) if match else ():
        value = parameters
        for key in path:
            if isinstance(value, Mapping) and f"{key}.$" in value:
                return True
            value = value.get(key) if isinstance(value, Mapping) else None
    return False


def find_task_faults(tasks: object) -> Iterator[Fault]:
    """Yield the faults of the argument ``tasks``."""
    if not isinstance(tasks, Mapping):
        yield Fault("tasks", type(tasks).__name__, "a mapping of resources to tasks")
        return
    for name, task in tasks.items():
        at = f"tasks[{name!r}]"
        if not isinstance(name, str):
            yield Fault(at, "a key that is not a string", "a Resource or the name in it")
        if not isinstance(task, (Command, BatchJobs)) and not callable(task):
            advice = "for a program use Command([...])"
            allowed = "a callable, a Command or BatchJobs"
            yield Fault(at, type(task).__name__, allowed, advice)


def iterate_states(
    machine: Any, location: JsonLocation = (), *, reachable: bool = False
) -> Iterator[tuple[JsonLocation, dict[str, Any]]]:
    """Yield the states of a valid machine, including nested ones.

    ``reachable`` is whether to omit states that no execution reaches.
    """
    reached = find_reachable(machine["States"], machine["StartAt"]) if reachable else None
    for name, state in machine["States"].items():
        if reached is not None and name not in reached:
            continue
        inside = (*location, "States", name)
        yield inside, state
        for number, branch in enumerate(state.get("Branches", ())):
            yield from iterate_states(branch, (*inside, "Branches", number), reachable=reachable)
        for field in ("ItemProcessor", "Iterator"):
            if field in state:
                yield from iterate_states(state[field], (*inside, field), reachable=reachable)


def find_run_faults(document: Any, tasks: TaskRegistry) -> Iterator[Fault]:
    """Yield the faults of a valid machine that prevent its execution with these tasks."""
    for location, state in iterate_states(document, reachable=True):
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
        known = tasks.find_function(name, str(location[-1]))
        if "FunctionName.$" not in parameters and known is None:
            asked = "nothing" if name is None else name
            yield _missing_task((*location, "Parameters"), asked, tasks, "FunctionName")
    elif tasks.find(resource, str(location[-1]), state.get("Parameters")) is None and not (
        _is_named_at_run_time(resource, state.get("Parameters"))
    ):
        yield _missing_task(location, resource, tasks)


def _missing_task(
    location: JsonLocation, asked: object, tasks: TaskRegistry, name: str = "Resource"
) -> Fault:
    advice = "pass a task for it, under the resource, the name of what it runs or that of the state"
    return _fault(location, name, asked, f"one of the tasks: {tasks.names}", advice)


def _fault(
    location: JsonLocation, name: str, asked: object, allowed: str, advice: str = ""
) -> Fault:
    return Fault(format_location((*location, name)), str(asked), allowed, advice)
