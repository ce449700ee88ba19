"""Tasks by ``Resource``, and the faults of a machine that cannot run with its tasks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hyperplane.asl.batch_jobs import BATCH_RESOURCES, BatchJobs, find_job_faults
from hyperplane.asl.checking import find_reachable
from hyperplane.asl.commands import Command
from hyperplane.asl.errors import StateError
from hyperplane.asl.payload_templates import DYNAMIC_SUFFIX, evaluate_dynamic
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
#: What to do for a resource without a task.
_TASK_ADVICE = (
    "pass a task for it, under the resource, the name of what it runs or that of the state"
)
#: Paths whose values are known before the first state.
_KNOWN = re.compile(r"\$\$\.(Execution|StateMachine)\b")
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
    def is_empty(self) -> bool:
        """Whether there are no tasks, so that none has a name that is known at run time only."""
        return not self._tasks

    @property
    def names(self) -> str:
        """Names of all tasks, for messages."""
        return ", ".join(self._tasks) or "none"

    def describe_missing(self, asked: str) -> str:
        """Return that there is no task for a resource or function that is known only now."""
        return f"there is no task for {asked}: the tasks are {self.names}; {_TASK_ADVICE}"


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


def find_run_faults(
    document: Any, tasks: TaskRegistry, context: Mapping[str, Any]
) -> Iterator[Fault]:
    """Yield the faults of a valid machine that prevent its execution with these tasks.

    ``context`` is the context object of the execution. The names that its paths lead to, such as
    that of a job definition in the input of the execution, are known before the first task.
    """
    for location, state in iterate_states(document, reachable=True):
        if state["Type"] == "Task":
            parameters = _resolve_paths(state.get("Parameters"), context)
            yield from _find_resource_faults(state["Resource"], parameters, location, tasks)
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


def _resolve_paths(parameters: Any, context: Mapping[str, Any]) -> Any:
    """Return parameters with the values of the paths that are known before the execution."""
    if not isinstance(parameters, Mapping):
        return parameters
    resolved = {}
    for name, value in parameters.items():
        if name.endswith(DYNAMIC_SUFFIX) and isinstance(value, str) and _KNOWN.match(value):
            # What the input lacks fails when the state runs, with the name of the path.
            with suppress(StateError):
                known = evaluate_dynamic(value, None, context)
                resolved[name.removesuffix(DYNAMIC_SUFFIX)] = known
                continue
        resolved[name] = _resolve_paths(value, context)
    return resolved


def _find_resource_faults(
    resource: str, parameters: Any, location: JsonLocation, tasks: TaskRegistry
) -> Iterator[Fault]:
    task = tasks.find(resource, str(location[-1]), parameters)
    if resource.endswith(".waitForTaskToken"):
        allowed = "a task without a token: callbacks with task tokens are not supported"
        yield _fault(location, "Resource", resource, allowed)
    elif tasks.is_lambda_invoke(resource):
        parameters = parameters or {}
        name = parameters.get("FunctionName")
        known = tasks.find_function(name, str(location[-1]))
        is_dynamic = "FunctionName.$" in parameters and not tasks.is_empty
        if known is None and not is_dynamic:
            asked = "nothing" if name is None else name
            yield _missing_task((*location, "Parameters"), asked, tasks, "FunctionName")
    elif _is_named_at_run_time(resource, parameters):
        if task is None and tasks.is_empty:
            yield _missing_task(location, resource, tasks)
    elif task is None:
        yield _missing_task(location, resource, tasks)
    elif isinstance(task, BatchJobs) and parameters is not None:  # else the input of the state
        inside = format_location((*location, "Parameters"))
        for fault in find_job_faults(parameters, is_template=True):
            yield replace(fault, where=f"{inside}.{fault.where}")


def list_task_names(document: Any, context: Mapping[str, Any]) -> list[str] | None:
    """Return the names of the tasks of a valid machine; None if one is known at run time only.

    ``context`` is that of :func:`find_run_faults`. What the states run comes first, and then the
    resources, which those of a service share.
    """
    names: dict[str, None] = {}
    resources: dict[str, None] = {}
    for location, state in iterate_states(document):
        if "ItemReader" in state:
            resources[state["ItemReader"]["Resource"]] = None
        if state["Type"] == "Task":
            parameters = _resolve_paths(state.get("Parameters"), context)
            found = _list_names(state["Resource"], parameters)
            if found is None:
                return None
            names |= dict.fromkeys([*found, str(location[-1])])
            resources[state["Resource"]] = None
    return list(names | resources)


def _list_names(resource: str, parameters: Any) -> list[str] | None:
    """Return the names of what a state runs; None if they are known at run time only."""
    match = _SERVICE.fullmatch(resource)
    is_invoke = _INVOKE.fullmatch(resource) is not None
    if parameters is None and (is_invoke or (match and match.group(1) in _NAMES_IN_PARAMETERS)):
        return None  # those of the input of the state
    if _is_named_at_run_time(resource, parameters):
        return None
    if not is_invoke:
        return _names_of(resource, parameters)
    function = (parameters or {}).get("FunctionName")
    if not isinstance(function, str):
        return None
    match = _FUNCTION.fullmatch(function)
    return [match.group(1), function] if match else [function]


def _missing_task(
    location: JsonLocation, asked: object, tasks: TaskRegistry, name: str = "Resource"
) -> Fault:
    advice = _TASK_ADVICE
    if asked in BATCH_RESOURCES:
        advice = f"{advice}; or BatchJobs (--batch-folder), which runs the command of the job here"
    return _fault(location, name, asked, f"one of the tasks: {tasks.names}", advice)


def _fault(
    location: JsonLocation, name: str, asked: object, allowed: str, advice: str = ""
) -> Fault:
    return Fault(format_location((*location, name)), str(asked), allowed, advice)
