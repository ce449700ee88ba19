"""Faults of options and pipelines that EMR Serverless cannot run."""

from __future__ import annotations

from collections.abc import Iterator

from hyperplane.core.errors import Fault
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.runners.container_steps import find_code_faults
from hyperplane.jobs.runners.driver_steps import (
    find_node_faults,
    find_package_faults,
    find_python_faults,
    find_secret_faults,
    find_setting_faults,
    find_timeout_faults,
    requested_size,
    size_fault,
)
from hyperplane.jobs.runners.emr_serverless.requests import MAX_MINUTES, SYSTEM, step_worker
from hyperplane.platforms.aws.emr_serverless_sizes import LARGEST
from hyperplane.spec.settings import EmrServerlessSettings

_SECTION = "hyperplane.runners.emr_serverless"
_REQUIRED = {
    "application": "the id of an application of type Spark",
    "role": "the ARN of a role that emr-serverless.amazonaws.com may assume",
    "staging": "a folder of a bucket, such as s3://bucket/folder",
}
_ADVICE = f"set {_SECTION}.python to one that the image of the application has"
#: Where packages are installed.
_PACKAGES = "install the packages in the image of the application, and omit the key"


def find_option_faults(settings: EmrServerlessSettings) -> list[Fault]:
    """Return a fault for each setting that is missing, or that the service refuses."""
    return [
        *find_setting_faults(settings, _SECTION, _REQUIRED),
        *find_package_faults(settings, _SECTION, _ADVICE),
    ]


def find_step_faults(pipeline: Pipeline, settings: EmrServerlessSettings) -> Iterator[Fault]:
    """Yield a fault for each part of a pipeline that a run cannot have."""
    yield from find_code_faults(pipeline, settings, "emr-serverless", _PACKAGES)
    for step in pipeline.steps:
        yield from find_python_faults(step, settings.python, _ADVICE)
        yield from find_node_faults(step, SYSTEM)
        yield from find_secret_faults(step, "emr-serverless")
        yield from find_timeout_faults(step, MAX_MINUTES, SYSTEM)


def find_resource_faults(pipeline: Pipeline, settings: EmrServerlessSettings) -> Iterator[Fault]:
    """Yield a fault for each step that no worker can run."""
    for step in pipeline.steps:
        size = requested_size(step, settings)
        if size is not None and step_worker(step, 1.0, settings) is None:
            allowed = f"at most {LARGEST.cores:g} cores and {LARGEST.memory} MiB, and no GPUs"
            yield size_fault(step, size, allowed)
