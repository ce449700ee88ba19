"""Exporter to Amazon States Language: a machine whose tasks are AWS Batch jobs."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hyperplane import config
from hyperplane.asl.checking import check_machine
from hyperplane.asl.reading import MAX_FILE_BYTES
from hyperplane.core.errors import Fault, UnknownPool, check
from hyperplane.core.units import parse_seconds
from hyperplane.jobs.definition.dependencies import order_in_waves
from hyperplane.jobs.definition.message_formatting import format_value
from hyperplane.jobs.execution.cluster_arguments import cluster_variable, find_framework_faults
from hyperplane.jobs.execution.retries import BACKOFF_RATE, count_retries, retry_delay
from hyperplane.jobs.exporters.scheduler_text import format_limit, slug
from hyperplane.jobs.runners.step_resources import grace_seconds, resource_request
from hyperplane.jobs.submission.parameters import (
    parameter_faults,
    parameter_variables,
    parameters_as_text,
)
from hyperplane.platforms.aws.task_sizes import least_memory

if TYPE_CHECKING:
    from hyperplane.jobs.definition.step import Step

#: Resource that runs a Batch job and waits for its end.
BATCH = "arn:aws:states:::batch:submitJob.sync"
#: Maximum length of a state's name; minimum and maximum size of a Batch array job.
_MAX_NAME_LENGTH, _MIN_ARRAY_SIZE, _MAX_ARRAY_SIZE = 80, 2, 10_000
#: Maximum length of the name of a Batch job, and bytes of a request to submit one.
_MAX_JOB_NAME_LENGTH, _MAX_REQUEST_BYTES = 128, 30 * 1024
#: Beginnings of names of variables that only Batch sets, and of arguments that it replaces.
_RESERVED, _REFERENCE = "AWS_BATCH", "Ref::"
#: Maximum attempts of Batch at a job, or at a child of an array job.
_MAX_ATTEMPTS = 10
#: Maximum of MaxDelaySeconds in AWS Step Functions.
_MAX_DELAY_SECONDS = 31_622_399
#: Variables with the number of a chunk, which only its container knows.
_CHUNK_VARIABLES = ("HYPERPLANE_SHARD_INDEX", *parameter_variables({"chunk_id": ""}))
_PROGRAMS = {"python": "python", "javascript": "node", "bash": "bash"}


def to_asl(
    name: str,
    steps: Sequence[Step],
    requirements: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    working_dir: str | None = None,
) -> dict[str, Any]:
    """Convert the steps of a pipeline to a state machine whose tasks are AWS Batch jobs.

    The input of an execution names their queue and definition: ``{"job_queue": ...,
    "job_definition": ...}``. The container needs the pipeline's files in its working directory.
    Chunks become an array job. The programs see the variables of the step and of its chunk as in a
    job, such as ``CHUNK_ID``, also those that the ``env`` of the step sets instead; for chunks the
    image needs ``sh``. ``timeout`` limits each attempt at a step or chunk, from the start of its
    program, for which the image needs the program ``timeout`` of coreutils or BusyBox. A step with
    ``step_functions`` is that task, for example a Glue job, and its program is not used; its
    ``timeout`` is that of the task, rounded up to whole seconds.

    The language has no dependencies between single states, only branches that end together.
    Therefore steps are grouped into waves, and a step starts when all steps of the previous wave
    are done: possibly later than its dependencies require, never earlier.

    ``Retry`` has the retries of the step, or the configured ``max_retries``, and the delays of
    ``retry_wait`` and ``retry_wait_most`` in whole seconds. Of a step with chunks Batch itself
    retries those that fail, without delays: ``Retry`` would run all chunks again. Neither sees the
    exit codes after which a job makes no retry, so every failure and every timeout is retried.

    Parameters
    ----------
    name : str
        Name of the pipeline, for the comment.
    steps : sequence of Step
        Its steps.
    requirements : str, optional
        Its requirements file, which is refused.
    parameters : mapping, optional
        Names and values, for the environment of each step.
    working_dir : str, optional
        Its working folder, which is refused.

    Returns
    -------
    dict
        The state machine; serialize it with ``json.dumps``.

    Raises
    ------
    RequestError
        With everything that Batch does not support.

    Examples
    --------
    >>> from hyperplane.jobs import Step
    >>> step = Step(name="hello", kind="command", argv=("echo", "hello"))
    >>> machine = to_asl("greeting", [step])
    >>> machine["StartAt"], machine["States"]["hello"]["Resource"]
    ('hello', 'arn:aws:states:::batch:submitJob.sync')
    """
    parameter_values: Any = {} if parameters is None else parameters
    if not isinstance(parameter_values, Mapping):
        check(
            [Fault("parameters", type(parameter_values).__name__, "a mapping of names to values")]
        )
    check([*parameter_faults(parameter_values), *_batch_faults(steps, requirements, working_dir)])
    environment = {
        "HYPERPLANE_JOB_PIPELINE": name,
        "PYTHONUNBUFFERED": "1",
        **parameter_variables(parameters_as_text(parameter_values)),
    }
    names: dict[str, str] = {}
    batch_names: dict[str, str] = {}
    for step in steps:
        names[step.name] = _unique_name(step.name, names.values())
        batch_names[step.name] = _batch_name(step.name, batch_names.values())
    tasks = {step.name: _task(step, batch_names[step.name], environment) for step in steps}
    check(_size_faults(steps, tasks))
    states: dict[str, dict[str, Any]] = {}
    for number, wave in enumerate(order_in_waves(steps), start=1):
        if len(wave) == 1:
            states[names[wave[0]]] = tasks[wave[0]]
            continue
        branches = [
            {"StartAt": names[step], "States": {names[step]: {**tasks[step], "End": True}}}
            for step in wave
        ]
        taken = [*names.values(), *states]
        states[_unique_name(f"wave {number}", taken)] = {
            "Type": "Parallel", "Branches": branches, "ResultPath": None,
        }  # fmt: skip
    for (_, state), after in itertools.zip_longest(states.items(), list(states)[1:]):
        state.update({"Next": after} if after else {"End": True})
    machine = {"Comment": name, "StartAt": next(iter(states)), "States": states}
    size = _count_bytes(machine, indent=2)
    if size > MAX_FILE_BYTES:
        allowed = f"a machine of at most {MAX_FILE_BYTES} bytes, the limit of Step Functions"
        advice = "write large values of env and parameters, which are in each state, to files"
        check([Fault("steps", f"{size} bytes", allowed, advice)])
    check(check_machine(machine))  # parameters of step_functions may have invalid paths
    return machine


def _task(step: Step, job_name: str, environment: Mapping[str, str]) -> dict[str, Any]:
    state: dict[str, Any] = {"Type": "Task"}
    if step.step_functions is not None:
        state["Resource"] = step.step_functions["resource"]
        if "parameters" in step.step_functions:
            state["Parameters"] = step.step_functions["parameters"]
        if step.timeout is not None:
            state["TimeoutSeconds"] = _whole_seconds(step.timeout)
    else:
        state |= {"Resource": BATCH, "Parameters": _batch_parameters(step, job_name, environment)}
    state["ResultPath"] = None
    if retriers := _build_retriers(step):
        state["Retry"] = retriers
    return state


def _batch_parameters(step: Step, job_name: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters of the Batch job that runs the program of a step."""
    shared = {"HYPERPLANE_JOB_STEP": step.name, **environment}
    if step.chunks:
        shared["HYPERPLANE_SHARD_COUNT"] = str(step.chunks)
    variables = {**shared, **step.env, **cluster_variable(step, 0)}
    request = resource_request(step)
    amounts = {
        "VCPU": None if request.cores is None else f"{request.cores:g}",
        "MEMORY": None if request.memory is None else str(least_memory(request.memory)),
        "GPU": str(request.gpus) if request.gpus else None,
    }
    requested = [{"Type": kind, "Value": value} for kind, value in amounts.items() if value]
    container: dict[str, Any] = {"Command": _build_command(step)}
    container["Environment"] = [{"Name": k, "Value": v} for k, v in variables.items()]
    if requested:
        container["ResourceRequirements"] = requested
    return {
        "JobName": job_name,
        "JobQueue.$": "$$.Execution.Input.job_queue",
        "JobDefinition.$": "$$.Execution.Input.job_definition",
        "ContainerOverrides": container,
        **(_array_parameters(step) if step.chunks else {}),
    }


def _array_parameters(step: Step) -> dict[str, Any]:
    attempts = count_retries(step, config.jobs().max_retries) + 1
    retries = {"RetryStrategy": {"Attempts": attempts}} if attempts > 1 else {}
    return {"ArrayProperties": {"Size": step.chunks}, **retries}


def _build_command(step: Step) -> list[str]:
    """Return the command of a container, which sets the variables of the chunk first.

    The time limit is in the command: that of the state would be one for all chunks together with
    their time in the queue, and that of Batch is at least a minute and prevents a retry.
    """
    # A path that begins with a dash would be an option.
    path = f"./{step.path}" if step.path.startswith("-") else step.path
    command = [*step.argv] if step.kind == "command" else [_PROGRAMS[step.kind], path]
    if step.timeout is not None:
        grace = math.ceil(grace_seconds())
        command = ["timeout", "-k", str(grace), format_limit(step.timeout), *command]
    if not step.chunks:
        return command
    exports = (
        f'export {name}="$AWS_BATCH_JOB_ARRAY_INDEX"; '
        for name in _CHUNK_VARIABLES
        if name not in step.env
    )
    return ["sh", "-c", "".join(exports) + 'exec "$@"', "sh", *command]


def _build_retriers(step: Step) -> list[dict[str, Any]]:
    """Return the ``Retry`` of a step, with the number and the delays of the job's retries."""
    settings = config.jobs()
    retries = count_retries(step, settings.max_retries)
    if not retries or step.chunks:
        return []
    interval = _whole_seconds(retry_delay(1, settings))
    max_delay = _whole_seconds(parse_seconds(settings.retry_wait_most))
    retrier = {
        "ErrorEquals": ["States.TaskFailed", "States.Timeout"],
        "MaxAttempts": retries,
        "IntervalSeconds": interval,
    }
    # Step Functions requires a maximum above the interval.
    if max_delay > interval:
        return [{**retrier, "BackoffRate": BACKOFF_RATE, "MaxDelaySeconds": max_delay}]
    return [{**retrier, "BackoffRate": 1.0}]


def _whole_seconds(seconds: float) -> int:
    """Round up to a delay that the language allows: a positive integer."""
    return max(1, math.ceil(min(seconds, _MAX_DELAY_SECONDS)))


def _batch_faults(
    steps: Sequence[Step], requirements: str | None, working_dir: str | None
) -> list[Fault]:
    """Return the faults of steps that Batch, or a container without other files, cannot run."""
    faults = []
    if working_dir is not None:
        allowed = "no value; set the folder in the image of the job definition"
        faults.append(Fault("working_dir", format_value(working_dir), allowed))
    if requirements is not None:
        allowed = "no requirements; install them in the image of the job definition"
        faults.append(Fault("requirements", requirements, allowed))
    for number, step in enumerate(steps):
        where = f"steps[{number}]"
        if step.step_functions is not None:
            for field in ("chunks", "foreach"):
                if getattr(step, field) is not None:
                    allowed = "no value in a step with step_functions, which is one task"
                    faults.append(Fault(f"{where}.{field}", "given", allowed))
            continue
        if step.kind == "notebook":
            advice = "make it a python step, or a command that runs papermill"
            faults.append(Fault(f"{where}.kind", "notebook", "a program", advice))
        if step.gang_size:
            field, shown = ("kind", "train") if step.kind == "train" else ("gang", str(step.gang))
            allowed = "a step of one process; Batch starts the containers of a job separately"
            faults.append(Fault(f"{where}.{field}", shown, allowed))
        if step.foreach is not None:
            faults.append(Fault(f"{where}.foreach", "values", "chunks; array jobs have indices"))
        if step.chunks is not None and not _MIN_ARRAY_SIZE <= step.chunks <= _MAX_ARRAY_SIZE:
            allowed = f"{_MIN_ARRAY_SIZE} to {_MAX_ARRAY_SIZE}, the sizes of an array job"
            faults.append(Fault(f"{where}.chunks", str(step.chunks), allowed))
        retries = count_retries(step, config.jobs().max_retries)
        if step.chunks is not None and retries >= _MAX_ATTEMPTS:
            allowed = f"at most {_MAX_ATTEMPTS - 1} for chunks, which Batch retries"
            faults.append(Fault(f"{where}.retries", str(retries), allowed))
        if step.max_parallel is not None:
            allowed = "no value; Batch starts as many chunks as the queue has room for"
            faults.append(Fault(f"{where}.max_parallel", str(step.max_parallel), allowed))
        if step.output is not None:
            allowed = "no value; Batch runs all chunks, also those whose shard is saved already"
            advice = "remove it if the program may save a shard again"
            faults.append(Fault(f"{where}.output", format_value(step.output), allowed, advice))
        faults += _variable_faults(step, where)
        for field in ("split", "more_memory"):
            if (value := getattr(step, field)) is not None:
                allowed = "no value; Batch repeats a step unchanged"
                faults.append(Fault(f"{where}.{field}", f"{value:g}", allowed))
        for field in ("secrets", "working_dir"):
            if getattr(step, field):
                allowed = "no value; set it in the job definition"
                faults.append(Fault(f"{where}.{field}", "given", allowed))
        faults += find_framework_faults(step, where, "Batch")
        try:
            resource_request(step)
        except UnknownPool as error:
            pool = f"{where}.resources.pool"
            faults += [replace(fault, where=pool) for fault in error.faults]
    return faults


def _variable_faults(step: Step, where: str) -> Iterator[Fault]:
    """Yield the faults of variables and arguments that Batch refuses or replaces."""
    for name in step.env:
        if name.startswith(_RESERVED):
            allowed = f"a name that does not begin with {_RESERVED}, as only Batch sets those"
            yield Fault(f"{where}.env", format_value(name), allowed)
    for number, word in enumerate(step.argv):
        if not word or word.startswith(_REFERENCE):
            allowed = f"text that is not empty, as Batch requires, nor begins with {_REFERENCE}"
            advice = "pass the value in env, and read it in a script"
            yield Fault(f"{where}.argv[{number}]", format_value(word), allowed, advice)


def _size_faults(steps: Sequence[Step], tasks: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield a fault for each step whose request to submit the job is larger than Batch allows."""
    for number, step in enumerate(steps):
        if step.step_functions is not None:
            continue
        size = _count_bytes(tasks[step.name]["Parameters"])
        if size > _MAX_REQUEST_BYTES:
            allowed = (
                f"at most {_MAX_REQUEST_BYTES} bytes of arguments, env, cluster and parameters of "
                "the job, the limit of Batch for a request"
            )
            advice = "write large values to a file and pass its path"
            yield Fault(f"steps[{number}]", f"{size} bytes", allowed, advice)


def _count_bytes(value: Any, indent: int | None = None) -> int:
    return len(json.dumps(value, ensure_ascii=False, indent=indent).encode())


def _batch_name(name: str, taken: Collection[str]) -> str:
    """Return a name of a Batch job that is not taken: letters, digits and hyphens."""
    return _find_free(slug(name, _MAX_JOB_NAME_LENGTH) or "step", taken, "-", _MAX_JOB_NAME_LENGTH)


def _unique_name(name: str, taken: Collection[str]) -> str:
    """Return a state name that is short enough and not taken."""
    return _find_free(name, taken, " ", _MAX_NAME_LENGTH)


def _find_free(name: str, taken: Collection[str], mark: str, most: int) -> str:
    """Return the beginning of a name, with a number after the mark if it is taken."""
    short = name[:most]
    for number in itertools.count(2):
        if short not in taken:
            break
        short = f"{name[: most - 6]}{mark}{number}"
    return short
