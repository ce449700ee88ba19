"""Requests to Vertex AI for attempts: the custom job, and the manifest of its task."""

from __future__ import annotations

import errno
import math
from collections.abc import Sequence
from typing import Any

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.gcp.bucket_task import PlannedBucketJob, plan_task
from hyperplane.jobs.runners.staged_code import TaskFile
from hyperplane.jobs.runners.step_resources import grace_seconds
from hyperplane.jobs.runners.task_manifest import parse_pairs
from hyperplane.jobs.runners.vertex.machines import step_machine
from hyperplane.jobs.runners.vertex.tuning import build_tuning_job, read_tuning
from hyperplane.platforms.object_staging import parse_staging
from hyperplane.spec.settings import VertexSettings

#: Seconds that Vertex AI waits longer than the supervisor, which ends attempts at their time limit.
_TIMEOUT_MARGIN = 120
#: Name of the service in errors.
SYSTEM = "Vertex AI"

Object = dict[str, Any]


def attempt_seconds(timeout: float) -> int:
    """Return the seconds after which Vertex AI ends an attempt, also without a supervisor."""
    return math.ceil(timeout + grace_seconds()) + _TIMEOUT_MARGIN


def pool_counts(step: Step) -> list[int]:
    """Return the machines in each worker pool of a step.

    The pools of a training program are those of its primary, workers, parameter servers and
    evaluators. A pool without machines is empty, and left out at the end.

    Examples
    --------
    >>> step = Step(name="fit", kind="train", module_name="trainer.task", parameter_server_count=2)
    >>> pool_counts(step)
    [1, 0, 2]
    """
    counts = [1, step.worker_count, step.parameter_server_count, step.evaluator_count]
    while not counts[-1]:
        counts.pop()
    return counts


def plan_job(
    command: AttemptCommand,
    step: Step,
    memory_factor: float,
    settings: VertexSettings,
    program: TaskFile,
    files: Sequence[TaskFile],
) -> PlannedBucketJob:
    """Return the requests for one attempt: a custom job, or a tuning job of such jobs.

    ``program`` is the program of the container, and ``files`` are those that it writes there.
    Raises OSError if there is no machine that is large enough.
    """
    machine = step_machine(step, memory_factor, settings)
    if machine is None:
        raise OSError(errno.EPERM, "no machine of Vertex AI is large enough", SYSTEM)
    folder = parse_staging(str(settings.staging))
    task = plan_task(command, step, folder, settings.labels, program, files)
    container: Object = {
        "imageUri": settings.image,
        "command": task.command,
        "args": task.args,
        "env": [
            # Vertex AI replaces $(NAME) in values by the value of the variable.
            {"name": variable, "value": text.replace("$(", "$$(")}
            for variable, text in parse_pairs(settings.environ).items()
        ],
    }
    scheduling: Object = {"disableRetries": True}  # the supervisor retries
    if step.timeout is not None:
        scheduling["timeout"] = f"{attempt_seconds(step.timeout)}s"
    if settings.spot:
        scheduling["strategy"] = "SPOT"
    pool: Object = {
        "machineSpec": machine.spec(),
        "diskSpec": {"bootDiskSizeGb": settings.disk_gb},
        "containerSpec": container,
    }
    spec: Object = {
        "workerPoolSpecs": [
            {**pool, "replicaCount": str(count)} if count else {} for count in pool_counts(step)
        ],
        "scheduling": scheduling,
    }
    if settings.service_account:
        spec["serviceAccount"] = settings.service_account
    if settings.network:
        spec["network"] = settings.network
    job: Object = {"displayName": task.name, "labels": task.labels, "jobSpec": spec}
    if (tuning := read_tuning(step)) is not None:
        job = build_tuning_job(tuning, job)
    return PlannedBucketJob(job, task.manifest_key, task.manifest)
