"""Requests to AWS Batch for attempts: job definition and job."""

from __future__ import annotations

import errno
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hyperplane.core.units import gb_to_bytes
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.attempt_names import attempt_job_name, owning_job_id
from hyperplane.jobs.runners.container_secrets import secret_variable_sources
from hyperplane.jobs.runners.staged_code import TaskFile
from hyperplane.jobs.runners.step_resources import grace_seconds, resource_request
from hyperplane.jobs.runners.task_manifest import build_manifest, parse_pairs, with_notebook_program
from hyperplane.platforms.aws.task_sizes import LARGEST_FARGATE, least_memory, round_to_fargate
from hyperplane.platforms.object_staging import parse_staging
from hyperplane.platforms.task_size import TaskSize
from hyperplane.spec.settings import AwsBatchSettings
from hyperplane.spec.settings.aws import DEFAULT_LOG_GROUP

#: Tag of all jobs and definitions, with the id of the job of hyperplane.
JOB_TAG = "hyperplane-job"
#: Executes the text of task_program.py. It is fixed: user input is only in its arguments.
BOOTSTRAP = (
    "import boto3,hashlib,sys;"
    "b,k=sys.argv[1:3];"
    "t=boto3.client('s3').get_object(Bucket=b,Key=k)['Body'].read();"
    "hashlib.sha256(t).hexdigest() in k or sys.exit(k+' has changed');"
    "exec(compile(t,k,'exec'))"
)
#: Least seconds of a time limit.
_LEAST_TIMEOUT = 60
#: Seconds that Batch waits longer than the supervisor, which ends attempts at their time limit.
_TIMEOUT_MARGIN = 120

#: Maximum children of an array job.
MAX_ARRAY = 10_000

Object = dict[str, Any]


def task_size(step: Step, memory_factor: float, settings: AwsBatchSettings) -> TaskSize | None:
    """Return the size of the container of a step; None if Fargate has none that is large enough."""
    request = resource_request(step)
    memory = gb_to_bytes(settings.ram_gb) if request.memory is None else request.memory
    cores = settings.cores if request.cores is None else request.cores
    mib = least_memory(memory * memory_factor)
    if settings.platform == "fargate":
        return round_to_fargate(TaskSize(cores, mib, request.gpus))
    # Instances have whole cores; a smaller request would be refused.
    return TaskSize(max(1, math.ceil(cores)), mib, request.gpus)


def attempt_seconds(timeout: float) -> int:
    """Return the seconds after which Batch ends an attempt, also without a supervisor."""
    return max(_LEAST_TIMEOUT, math.ceil(timeout + grace_seconds()) + _TIMEOUT_MARGIN)


def container_variables(settings: AwsBatchSettings) -> dict[str, str]:
    """Return the variables that the job definition sets."""
    region = {"AWS_DEFAULT_REGION": settings.region} if settings.region else {}
    return {**region, **parse_pairs(settings.environ)}


def build_definition(
    step: Step, size: TaskSize, secret_names: Mapping[str, str], settings: AwsBatchSettings
) -> Object:
    """Return the request that registers the job definition of attempts.

    Its name has the hash of its content. ``secret_names`` are the variables with secrets and the
    ARN of each value, which Batch reads itself.
    """
    resources = [
        {"type": "VCPU", "value": f"{size.cores:g}"},
        {"type": "MEMORY", "value": str(size.memory)},
        *([{"type": "GPU", "value": str(size.gpus)}] if size.gpus else []),
    ]
    container: Object = {
        "image": settings.image,
        "resourceRequirements": resources,
        # Otherwise the program is the first process of the container, and ignores SIGTERM.
        "linuxParameters": {"initProcessEnabled": True},
        "environment": [
            {"name": name, "value": text} for name, text in container_variables(settings).items()
        ],
    }
    if settings.log_group != DEFAULT_LOG_GROUP:  # Batch creates its default group itself
        container["logConfiguration"] = {
            "logDriver": "awslogs",
            "options": {"awslogs-group": settings.log_group},
        }
    if settings.job_role:
        container["jobRoleArn"] = settings.job_role
    if settings.execution_role:
        container["executionRoleArn"] = settings.execution_role
    if secret_names:
        container["secrets"] = [
            {"name": name, "valueFrom": arn} for name, arn in sorted(secret_names.items())
        ]
    if settings.platform == "fargate":
        enabled = "ENABLED" if settings.public_ip else "DISABLED"
        container["networkConfiguration"] = {"assignPublicIp": enabled}
    request: Object = {
        "type": "container",
        "containerProperties": container,
        "platformCapabilities": [settings.platform.upper()],
        "retryStrategy": {"attempts": 1},  # the supervisor retries
    }
    if step.timeout is not None:
        request["timeout"] = {"attemptDurationSeconds": attempt_seconds(step.timeout)}
    if settings.tags:
        request["tags"] = parse_pairs(settings.tags)
    digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
    return {"jobDefinitionName": f"hyperplane-{digest[:32]}", **request}


class PlannedSubmission(NamedTuple):
    """Requests of attempts, before anything is sent.

    Parameters
    ----------
    definition : dict
        Request that registers the job definition.
    job : dict
        Request that submits the job; ``jobDefinition`` is the name of the definition, in place of
        which the runner sends its ARN.
    manifest_key : str
        Key of the manifest in the bucket.
    manifest : dict
        Files, variables and programs of the tasks.
    """

    definition: Object
    job: Object
    manifest_key: str
    manifest: Object


def plan_submission(
    commands: Sequence[AttemptCommand],
    step: Step,
    memory_factor: float,
    settings: AwsBatchSettings,
    program: TaskFile,
    files: Sequence[TaskFile],
) -> PlannedSubmission:
    """Return the requests for one attempt, or for an array of attempts at chunks of a step.

    ``program`` is the program of the container, and ``files`` are those that it writes there.
    Raises OSError if no container of the platform is large enough.
    """
    size = task_size(step, memory_factor, settings)
    if size is None:
        message = f"no container of Fargate is large enough: at most {LARGEST_FARGATE}, and no GPUs"
        raise OSError(errno.EPERM, message, "AWS Batch")
    folder, name = parse_staging(str(settings.staging)), attempt_job_name(commands[0])
    prepared = [with_notebook_program(command, step) for command in commands]
    keys = [folder.content_key(file.content, file.suffix) for file in files]
    manifest_key = folder.key("attempts", f"{name}.json")
    definition = build_definition(step, size, secret_variable_sources(step, settings), settings)
    words = [
        "python",
        "-c",
        BOOTSTRAP,
        folder.bucket,
        folder.content_key(program.content, program.suffix),
        manifest_key,
    ]
    job = {
        "jobName": name,
        "jobQueue": settings.queue,
        "jobDefinition": definition["jobDefinitionName"],
        **({"arrayProperties": {"size": len(commands)}} if len(commands) > 1 else {}),
        "containerOverrides": {"command": words},
        "tags": {**parse_pairs(settings.tags), JOB_TAG: owning_job_id(commands[0])},
        "propagateTags": True,
    }
    manifest = build_manifest(prepared, step, files, keys)
    return PlannedSubmission(definition, job, manifest_key, manifest)
