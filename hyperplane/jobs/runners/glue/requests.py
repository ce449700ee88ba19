"""Requests to AWS Glue for attempts: the job of an attempt, which has one run."""

from __future__ import annotations

import errno
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.attempt_names import owning_job_id
from hyperplane.jobs.runners.driver_files import JOB_TAG, plan_driver, step_size
from hyperplane.jobs.runners.staged_code import TaskFile
from hyperplane.jobs.runners.step_resources import grace_seconds
from hyperplane.jobs.runners.task_manifest import parse_pairs
from hyperplane.platforms.aws.glue_workers import PYTHON_SHELL, GlueWorker, find_worker
from hyperplane.spec.settings import GlueSettings

#: Name of the service in messages.
SYSTEM = "AWS Glue"
#: Version of Glue of Python shell jobs with Python 3.9, the latest that they have.
_SHELL_VERSION, SHELL_PYTHON = "3.0", "3.9"
#: Maximum minutes of a run. Without a time limit, Glue would end it after 8 hours or 2 days.
MAX_MINUTES = 10_079
#: Minutes that Glue waits longer than the supervisor, which ends attempts at their time limit.
_TIMEOUT_MARGIN = 2

Object = dict[str, Any]


def step_worker(step: Step, memory_factor: float, settings: GlueSettings) -> GlueWorker | None:
    """Return the machine that runs the program of a step; None if none is large enough."""
    size = step_size(step, memory_factor, settings)
    return find_worker(settings.job_type, size, settings.worker_type)


def count_workers(settings: GlueSettings) -> int:
    """Return the number of machines of a job."""
    return 1 if settings.job_type == PYTHON_SHELL else settings.workers


def attempt_minutes(timeout: float | None) -> int:
    """Return the minutes after which Glue ends an attempt, also without a supervisor."""
    if timeout is None:
        return MAX_MINUTES
    return min(MAX_MINUTES, math.ceil((timeout + grace_seconds()) / 60) + _TIMEOUT_MARGIN)


class PlannedGlueJob(NamedTuple):
    """Requests of an attempt, before anything is sent.

    Parameters
    ----------
    job : dict
        Request that creates the job. Its start has only the name.
    manifest_key : str
        Key of the manifest in the bucket.
    manifest : dict
        Files, variables and program of the attempt.
    """

    job: Object
    manifest_key: str
    manifest: Object


def plan_job(
    command: AttemptCommand,
    step: Step,
    memory_factor: float,
    settings: GlueSettings,
    program: TaskFile,
    files: Sequence[TaskFile],
) -> PlannedGlueJob:
    """Return the requests for an attempt.

    ``program`` is the program that the script of the job runs, and ``files`` are those that it
    writes there. Raises OSError if no machine of Glue is large enough.
    """
    worker = step_worker(step, memory_factor, settings)
    if worker is None:
        raise OSError(errno.EPERM, "no machine of AWS Glue is large enough", SYSTEM)
    driver = plan_driver(command, step, settings, program, files)
    arguments = dict(driver.arguments)
    if settings.python_modules:
        arguments["--additional-python-modules"] = ",".join(settings.python_modules)
    if settings.python_files:
        arguments["--extra-py-files"] = ",".join(settings.python_files)
    job = {
        "Name": driver.name,
        "Role": settings.role,
        "Command": {
            "Name": settings.job_type,
            "ScriptLocation": driver.script,
            "PythonVersion": SHELL_PYTHON if settings.job_type == PYTHON_SHELL else "3",
        },
        "DefaultArguments": arguments,
        # A second start is an error while the first run is active.
        "ExecutionProperty": {"MaxConcurrentRuns": 1},
        "MaxRetries": 0,  # the supervisor retries
        "Timeout": attempt_minutes(step.timeout),
        "Tags": {**parse_pairs(settings.tags), JOB_TAG: owning_job_id(command)},
        **_machines(worker, settings),
    }
    return PlannedGlueJob(job, driver.manifest_key, driver.manifest)


def _machines(worker: GlueWorker, settings: GlueSettings) -> Object:
    """Return the version and the machines of a job."""
    if settings.job_type == PYTHON_SHELL:
        return {"GlueVersion": _SHELL_VERSION, "MaxCapacity": worker.dpus}
    return {
        "GlueVersion": settings.glue_version,
        "WorkerType": worker.name,
        "NumberOfWorkers": settings.workers,
    }
