"""Faults of options and pipelines that AWS Batch cannot run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hyperplane.core.errors import Fault, UnknownPool
from hyperplane.jobs.definition.message_formatting import format_value
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.runners.aws_batch.requests import JOB_TAG, task_size
from hyperplane.jobs.runners.container_secrets import find_secret_faults, secret_sources
from hyperplane.jobs.runners.container_steps import find_code_faults
from hyperplane.jobs.runners.task_manifest import parse_pairs
from hyperplane.platforms.aws.service_check import ComputeEnvironment
from hyperplane.platforms.aws.task_sizes import LARGEST_FARGATE
from hyperplane.spec.settings import AwsBatchSettings

_SECTION = "hyperplane.runners.aws_batch"
_ADVICE = "set it in the configuration, or with the option {}="
#: Settings without which nothing can be submitted, and what they are.
_REQUIRED = {
    "queue": "the name of a job queue",
    "image": "the name of an image, such as registry/name:tag",
    "staging": "a folder of a bucket, such as s3://bucket/folder",
}
_REQUIRED_FOR_FARGATE = {
    "execution_role": "the ARN of a role that pulls the image and writes logs",
    "job_role": "the ARN of a role that reads the staging folder",
}


#: Beginning of the names of variables that only Batch sets.
_RESERVED = "AWS_BATCH"
#: Maximum tags of a job, without the one with the id of the job of hyperplane.
_MAX_TAGS = 49


def find_option_faults(settings: AwsBatchSettings) -> list[Fault]:
    """Return a fault for each setting that is missing, or that Batch refuses."""
    required = dict(_REQUIRED)
    if settings.platform == "fargate":
        required |= _REQUIRED_FOR_FARGATE
    faults = [
        Fault(f"{_SECTION}.{name}", "nothing", allowed, _ADVICE.format(name))
        for name, allowed in required.items()
        if getattr(settings, name) is None
    ]
    faults += [
        Fault(f"{_SECTION}.environ", repr(name), f"names that do not begin with {_RESERVED}")
        for name in parse_pairs(settings.environ)
        if name.startswith(_RESERVED)
    ]
    count = len(parse_pairs(settings.tags).keys() - {JOB_TAG})
    if count > _MAX_TAGS:
        allowed = f"at most {_MAX_TAGS} tags, besides {JOB_TAG}, which hyperplane adds"
        faults.append(Fault(f"{_SECTION}.tags", f"{count} tags", allowed))
    return faults


def find_step_faults(pipeline: Pipeline, settings: AwsBatchSettings) -> Iterator[Fault]:
    """Yield a fault for each part of a pipeline that a container cannot run."""
    yield from find_code_faults(pipeline, settings, "aws-batch")
    yield from find_secret_faults(pipeline, settings, _SECTION, "AWS Batch", "ARN")
    for step in pipeline.steps:
        if secret_sources(step, settings) and settings.execution_role is None:
            yield Fault(
                f"{_SECTION}.execution_role",
                "nothing",
                f"the ARN of a role that reads the secrets of step {step.name!r}",
                _ADVICE.format("execution_role"),
            )


def find_resource_faults(
    pipeline: Pipeline, settings: AwsBatchSettings, environments: Sequence[ComputeEnvironment]
) -> Iterator[Fault]:
    """Yield a fault for each step that no compute environment of the queue can run."""
    for step in pipeline.steps:
        where = f"step {step.name!r}: resources"
        try:
            size = task_size(step, 1.0, settings)
        except UnknownPool:  # reported for all runners, or chosen from earlier runs
            continue
        if size is None:
            asked = format_value(step.resources.model_dump(exclude_none=True))
            allowed = f"at most {LARGEST_FARGATE} and no GPUs on Fargate"
            yield Fault(where, asked, allowed, "use a queue of EC2 and the option platform=ec2")
        elif environments and not any(each.fits(size) for each in environments):
            asked = f"{size.cores:g} vCPU, {size.memory} MiB, {size.gpus} GPUs"
            allowed = "; ".join(each.describe() for each in environments)
            yield Fault(where, asked, allowed, "request less, or use another queue")
