"""Commands of the first attempts at the steps of a job, without a supervisor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hyperplane.jobs.definition.step import Resources, Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.execution.cluster_arguments import cluster_variable
from hyperplane.jobs.execution.step_command import (
    attempt_prefix,
    build_arguments,
    list_units,
    working_folder,
)
from hyperplane.jobs.execution.step_environment import secret_variables, step_variables
from hyperplane.jobs.runners.step_resources import resource_request
from hyperplane.jobs.store.job_records import Job


def first_attempts(
    job: Job, in_container: Job, step: Step, moved: Step
) -> Iterator[AttemptCommand]:
    """Yield the command of the first attempt at each unit of a step."""
    for unit in list_units(step):
        yield AttemptCommand(
            build_arguments(in_container, moved, unit, in_container.python),
            {},
            working_folder(in_container.pipeline, moved),
            attempt_prefix(job, unit, 1),
            {**step_variables(in_container, step, unit, 1), **cluster_variable(step, 0)},
            dict.fromkeys(secret_variables(dict.fromkeys(step.secrets, "")), ""),
            Path(job.pipeline.root, step.path) if step.path else None,
        )


def with_sizes(step: Step) -> Step:
    """Return a step with the resources of its pool in place of the pool's name."""
    request = resource_request(step)
    ram_gb = None if request.memory is None else request.memory / 1e9
    sizes = Resources(cores=request.cores, ram_gb=ram_gb, gpus=request.gpus)
    return step.model_copy(update={"resources": sizes})
