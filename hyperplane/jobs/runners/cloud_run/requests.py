"""Requests to Cloud Run for attempts: the job, and the manifest of its task."""

from __future__ import annotations

import errno
import math
from collections.abc import Mapping, Sequence
from typing import Any

from hyperplane.core.units import gb_to_bytes
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.container_secrets import secret_variable_sources
from hyperplane.jobs.runners.gcp.bucket_task import MOUNT, PlannedBucketJob, plan_task
from hyperplane.jobs.runners.staged_code import TaskFile
from hyperplane.jobs.runners.step_resources import grace_seconds, resource_request
from hyperplane.jobs.runners.task_manifest import parse_pairs
from hyperplane.platforms.gcp.cloud_run_sizes import (
    GPU_SECONDS,
    GPU_TYPE,
    LARGEST,
    MAX_SECONDS,
    round_to_cloud_run,
)
from hyperplane.platforms.object_staging import parse_staging
from hyperplane.platforms.task_size import TaskSize
from hyperplane.spec.settings import CloudRunSettings

#: Variables of the index and the count of a task. Each chunk is a job with one task, so that
#: Cloud Run sets 0 and 1; the program of the container sets the number of the chunk.
INDEX, COUNT = "CLOUD_RUN_TASK_INDEX", "CLOUD_RUN_TASK_COUNT"
_SHARD_INDEX, _SHARD_COUNT = "HYPERPLANE_SHARD_INDEX", "HYPERPLANE_SHARD_COUNT"
#: Seconds that Cloud Run waits longer than the supervisor, which ends attempts at their time limit.
_TIMEOUT_MARGIN = 120
#: Name of the volume of the bucket.
_VOLUME = "staging"
_MIB = 1 << 20
#: Name of the service in errors.
SYSTEM = "Cloud Run"

Object = dict[str, Any]


def step_request(step: Step, settings: CloudRunSettings) -> TaskSize:
    """Return the cores, the memory and the GPUs that a step requests, or those of the settings."""
    request = resource_request(step)
    memory = gb_to_bytes(settings.ram_gb) if request.memory is None else request.memory
    cores = settings.cores if request.cores is None else request.cores
    return TaskSize(cores, math.ceil(memory / _MIB), request.gpus)


def task_size(step: Step, memory_factor: float, settings: CloudRunSettings) -> TaskSize | None:
    """Return the size of the container of a step; None if none is large enough.

    The factor is that of the memory of the first container, which may be more than the request.
    """
    request = step_request(step, settings)
    first = round_to_cloud_run(request)
    if first is None or memory_factor <= 1:
        return first
    return round_to_cloud_run(request._replace(memory=math.ceil(first.memory * memory_factor)))


def attempt_seconds(timeout: float) -> int:
    """Return the seconds after which Cloud Run ends an attempt, also without a supervisor."""
    return min(MAX_SECONDS, math.ceil(timeout + grace_seconds()) + _TIMEOUT_MARGIN)


def time_limit(step: Step, size: TaskSize) -> int:
    """Return the time limit of the task of a step in seconds, which is never without one."""
    longest = GPU_SECONDS if size.gpus else MAX_SECONDS
    return longest if step.timeout is None else min(longest, attempt_seconds(step.timeout))


def plan_job(
    command: AttemptCommand,
    step: Step,
    memory_factor: float,
    settings: CloudRunSettings,
    program: TaskFile,
    files: Sequence[TaskFile],
) -> PlannedBucketJob:
    """Return the requests for one attempt.

    ``program`` is the program of the container, and ``files`` are those that it writes there.
    Raises OSError if no container is large enough.
    """
    size = task_size(step, memory_factor, settings)
    if size is None:
        message = f"no container of Cloud Run is large enough: at most {LARGEST}, and one GPU"
        raise OSError(errno.EPERM, message, SYSTEM)
    folder = parse_staging(str(settings.staging))
    task = plan_task(command, step, folder, settings.labels, program, files)
    if _SHARD_INDEX in command.step_variables:
        task.manifest["variables"] |= {
            INDEX: command.step_variables[_SHARD_INDEX],
            COUNT: command.step_variables[_SHARD_COUNT],
        }
    sources = secret_variable_sources(step, settings)
    job = {
        "labels": task.labels,
        "template": _build_template(
            task.command, task.args, size, time_limit(step, size), sources, settings
        ),
    }
    return PlannedBucketJob({"jobId": task.name, "job": job}, task.manifest_key, task.manifest)


def build_checked_job(settings: CloudRunSettings) -> Object:
    """Return a job with the image, the bucket, the account and the secrets of the settings."""
    secrets = enumerate(parse_pairs(settings.secrets).values())
    sources = {f"SECRET_{number}": source for number, source in secrets}
    size = round_to_cloud_run(TaskSize(1, 1)) or TaskSize(1, 1)
    return {"template": _build_template(["true"], [], size, 60, sources, settings)}


def _build_template(
    command: list[str],
    args: list[str],
    size: TaskSize,
    seconds: int,
    sources: Mapping[str, str],
    settings: CloudRunSettings,
) -> Object:
    """Return the template of an execution with one task."""
    bucket = parse_staging(str(settings.staging)).bucket
    limits = {"cpu": f"{size.cores:g}", "memory": f"{size.memory}Mi"}
    if size.gpus:
        limits["nvidia.com/gpu"] = str(size.gpus)
    container: Object = {
        "image": settings.image,
        "command": command,
        "args": args,
        "env": [
            *(
                {"name": name, "value": text}
                for name, text in parse_pairs(settings.environ).items()
            ),
            *(_secret_variable(name, source) for name, source in sorted(sources.items())),
        ],
        "resources": {"limits": limits},
        "volumeMounts": [{"name": _VOLUME, "mountPath": f"{MOUNT}/{bucket}"}],
    }
    task: Object = {
        "containers": [container],
        # Objects that were uploaded have no object for their folder.
        "volumes": [
            {"name": _VOLUME, "gcs": {"bucket": bucket, "mountOptions": ["implicit-dirs"]}}
        ],
        "executionEnvironment": "EXECUTION_ENVIRONMENT_GEN2",
        "maxRetries": 0,  # the supervisor retries
        "timeout": f"{seconds}s",
    }
    if settings.service_account:
        task["serviceAccount"] = settings.service_account
    if size.gpus:
        task |= {"nodeSelector": {"accelerator": GPU_TYPE}, "gpuZonalRedundancyDisabled": True}
    return {"taskCount": 1, "parallelism": 1, "template": task}


def _secret_variable(name: str, source: str) -> Object:
    """Return a variable with a secret, whose source is ``SECRET`` or ``SECRET:VERSION``."""
    secret, _, version = source.partition(":")
    reference = {"secret": secret, "version": version or "latest"}
    return {"name": name, "valueSource": {"secretKeyRef": reference}}
