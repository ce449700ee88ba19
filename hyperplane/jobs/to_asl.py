"""A pipeline as a machine of the Amazon States Language, for Step Functions with AWS Batch."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from hyperplane.errors import Fault, check
from hyperplane.jobs.definition.order import waves
from hyperplane.jobs.environment import parameter_faults, parameter_variables, parameters_as_text

if TYPE_CHECKING:
    from hyperplane.jobs.definition.models import Pipeline, Step

#: Runs a container and waits for its end.
BATCH = "arn:aws:states:::batch:submitJob.sync"
#: Characters of a state's name; chunks of an array job of Batch.
_MAX_NAME_LENGTH, _MIN_ARRAY_SIZE, _MAX_ARRAY_SIZE = 80, 2, 10_000
_PROGRAMS = {"python": "python", "javascript": "node", "bash": "bash"}


def to_asl(pipeline: Pipeline, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The pipeline as a machine whose tasks are jobs of AWS Batch.

    The input of an execution names the queue and the definition of these jobs:
    ``{"job_queue": ..., "job_definition": ...}``. The container has the pipeline's files in its
    working directory. Chunks are an array job, whose index :func:`hyperplane.shard` knows.

    The language has no steps that wait for some others, only branches that end together. So steps
    are put into waves: a step starts when all of the wave before it are done, which may be later
    than here, and is never earlier.

    Parameters
    ----------
    pipeline : Pipeline
        The steps.
    parameters : mapping, optional
        Names and values, for the environment of each step.

    Returns
    -------
    dict
        The machine; ``json.dumps`` makes its text.

    Raises
    ------
    RequestError
        With all that Batch cannot run so.

    Examples
    --------
    >>> from hyperplane.jobs import Pipeline, Step
    >>> step = Step(name="hello", kind="command", argv=("echo", "hello"))
    >>> machine = to_asl(Pipeline.from_steps("greeting", [step]))
    >>> machine["StartAt"], machine["States"]["hello"]["Resource"]
    ('hello', 'arn:aws:states:::batch:submitJob.sync')
    """
    given: Any = {} if parameters is None else parameters
    if not isinstance(given, Mapping):
        check([Fault("parameters", type(given).__name__, "a mapping of names to values")])
    check([*parameter_faults(given), *_batch_faults(pipeline)])
    environment = parameter_variables(parameters_as_text(given))
    names: dict[str, str] = {}
    for step in pipeline.steps:
        names[step.name] = _unique_name(step.name, names.values())
    tasks = {step.name: _task(step, environment) for step in pipeline.steps}
    states: dict[str, dict[str, Any]] = {}
    for number, wave in enumerate(waves(pipeline), start=1):
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
    return {"Comment": pipeline.name, "StartAt": next(iter(states)), "States": states}


def _task(step: Step, environment: Mapping[str, str]) -> dict[str, Any]:
    variables = {**environment, **step.env}
    command = [*step.argv] if step.kind == "command" else [_PROGRAMS[step.kind], step.path]
    needs = step.resources
    asked = {
        "VCPU": None if needs.cores is None else f"{needs.cores:g}",
        "MEMORY": None if needs.ram_gb is None else str(int(needs.ram_gb * 1e9) >> 20),  # MiB
        "GPU": str(needs.gpus) if needs.gpus else None,
    }
    wanted = [{"Type": kind, "Value": value} for kind, value in asked.items() if value]
    container: dict[str, Any] = {"Command": command}
    if variables:
        container["Environment"] = [{"Name": k, "Value": v} for k, v in variables.items()]
    if wanted:
        container["ResourceRequirements"] = wanted
    chunks = step.chunks or 0
    state: dict[str, Any] = {
        "Type": "Task",
        "Resource": BATCH,
        "Parameters": {
            "JobName": _batch_name(step.name),
            "JobQueue.$": "$$.Execution.Input.job_queue",
            "JobDefinition.$": "$$.Execution.Input.job_definition",
            "ContainerOverrides": container,
            **({"ArrayProperties": {"Size": chunks}} if chunks else {}),
        },
        "ResultPath": None,
    }
    if step.retries:
        again = {"MaxAttempts": step.retries, "IntervalSeconds": 1, "BackoffRate": 2.0}
        state["Retry"] = [{"ErrorEquals": ["States.TaskFailed", "States.Timeout"], **again}]
    if step.timeout is not None:
        state["TimeoutSeconds"] = max(1, round(step.timeout))
    return state


def _batch_faults(pipeline: Pipeline) -> list[Fault]:
    """What Batch, or a container with no more than the pipeline's files, cannot do."""
    faults = []
    if pipeline.requirements is not None:
        allowed = "no requirements: the image of the job definition has them"
        faults.append(Fault("requirements", pipeline.requirements, allowed))
    for number, step in enumerate(pipeline.steps):
        where = f"steps[{number}]"
        if step.kind == "notebook":
            advice = "make it a python step, or a command that runs papermill"
            faults.append(Fault(f"{where}.kind", "notebook", "a program", advice))
        if step.foreach is not None:
            faults.append(Fault(f"{where}.foreach", "values", "chunks: an array job has numbers"))
        if step.chunks is not None and not _MIN_ARRAY_SIZE <= step.chunks <= _MAX_ARRAY_SIZE:
            allowed = f"{_MIN_ARRAY_SIZE} to {_MAX_ARRAY_SIZE}, the sizes of an array job"
            faults.append(Fault(f"{where}.chunks", str(step.chunks), allowed))
        for field in ("secrets", "working_dir", "split", "more_memory"):
            if getattr(step, field):
                allowed = "nothing here: the job definition says it"
                faults.append(Fault(f"{where}.{field}", "given", allowed))
    return faults


def _batch_name(name: str) -> str:
    """A name as Batch has them: letters, digits, hyphens and underscores."""
    return "".join(mark if mark.isascii() and mark.isalnum() else "-" for mark in name)[:128]


def _unique_name(name: str, taken: Collection[str]) -> str:
    """A state's name, short enough and only once in the machine."""
    short = name[:_MAX_NAME_LENGTH]
    for number in itertools.count(2):
        if short not in taken:
            break
        short = f"{name[: _MAX_NAME_LENGTH - 6]} {number}"
    return short
