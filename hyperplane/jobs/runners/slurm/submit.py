"""Submit an attempt, or an array of attempts, as a batch job."""

from __future__ import annotations

import errno
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from hyperplane.jobs import step_wrapper
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.step_resources import resource_request
from hyperplane.platforms.slurm.directives import BatchResources, format_options
from hyperplane.platforms.slurm.logs import escape_path
from hyperplane.platforms.slurm.script import render_script
from hyperplane.platforms.slurm.submit import submit_script


class BatchJob(NamedTuple):
    """An attempt or array with its program, its log in Slurm's notation and its task indices."""

    command: AttemptCommand
    argv: Sequence[str]
    log: str
    array: str | None = None


def submit_attempt(
    command: AttemptCommand, step: Step, memory_factor: float, slurm_environment: Mapping[str, str]
) -> str:
    """Submit an attempt and return its job id.

    Slurm's commands are found in ``slurm_environment``. Raises OSError with the message of sbatch;
    its errno is EAGAIN for temporary failures.
    """
    argv = (
        sys.executable,
        "-I",
        "-S",
        step_wrapper.__file__,
        str(command.attempt_prefix),
        *command.argv,
    )
    batch = BatchJob(command, argv, escape_path(command.file(".log")))
    return submit_batch(batch, step, memory_factor, slurm_environment)


def submit_batch(
    batch: BatchJob, step: Step, memory_factor: float, slurm_environment: Mapping[str, str]
) -> str:
    """Submit a batch job or an array, as :func:`submit_attempt` does, and return its id."""
    command = batch.command
    if not Path(command.folder).is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder", command.folder)
    options: dict[str, str | int | bool | None] = {
        "job-name": batch_job_name(command),
        "no-requeue": True,
        # The whole environment of the step, which includes secrets, is passed only in this way.
        "export": "ALL",
        "output": batch.log,
        "array": batch.array,
        **batch_resources(step, memory_factor).options(),
    }
    return submit_script(
        render_script(batch.argv, command.folder),
        format_options(options),
        slurm_environment,
        job_environment=command.environment,
    )


def batch_resources(step: Step, memory_factor: float = 1.0) -> BatchResources:
    """Return the resources that a step requests of Slurm, with more memory after a failure."""
    request = resource_request(step)
    memory = None if request.memory is None else math.ceil(request.memory * memory_factor)
    return BatchResources(request.cores, memory, request.gpus, tasks=step.gang_size)


def batch_job_name(command: AttemptCommand) -> str:
    """Return the unique, reproducible name of an attempt's batch job."""
    above, _, attempt = str(command.attempt_prefix).rpartition("/steps/")
    return re.sub("[^A-Za-z0-9.-]+", "-", f"hyperplane-{Path(above).name}-{attempt}")
