"""Faults of options and pipelines that AWS Glue cannot run."""

from __future__ import annotations

from collections.abc import Iterator

from hyperplane.core.errors import Fault
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.runners.container_steps import find_code_faults
from hyperplane.jobs.runners.driver_steps import (
    find_kind_faults,
    find_secret_faults,
    find_setting_faults,
    find_timeout_faults,
    module_advice,
    requested_size,
    size_fault,
)
from hyperplane.jobs.runners.glue.requests import MAX_MINUTES, step_worker
from hyperplane.platforms.aws.glue_workers import PYTHON_SHELL, SPARK, WORKERS
from hyperplane.spec.settings import GlueSettings

_SECTION = "hyperplane.runners.glue"
#: Settings without which nothing can be submitted, and what they are.
_REQUIRED = {
    "role": "the ARN of a role that glue.amazonaws.com may assume",
    "staging": "a folder of a bucket, such as s3://bucket/folder",
}


def find_option_faults(settings: GlueSettings) -> list[Fault]:
    """Return a fault for each setting that is missing, or that Glue refuses."""
    faults = list(find_setting_faults(settings, _SECTION, _REQUIRED))
    if settings.send_package and settings.job_type == PYTHON_SHELL:
        allowed = f"false with job_type {PYTHON_SHELL}, whose Python 3.9 is too old for hyperplane"
        advice = f"set the option job_type={SPARK}"
        faults.append(Fault(f"{_SECTION}.send_package", "true", allowed, advice))
    return faults


def find_step_faults(pipeline: Pipeline, settings: GlueSettings) -> Iterator[Fault]:
    """Yield a fault for each part of a pipeline that a Glue job cannot run."""
    yield from find_code_faults(pipeline, settings, "glue", module_advice(_SECTION))
    for step in pipeline.steps:
        if step.kind == "notebook" and settings.job_type == PYTHON_SHELL:
            allowed = f"no notebook with job_type {PYTHON_SHELL}, whose Python 3.9 is too old"
            yield Fault(
                f"step {step.name!r}: kind", step.kind, allowed, f"set the option job_type={SPARK}"
            )
        yield from find_kind_faults(step, settings, _SECTION, "Glue")
        yield from find_secret_faults(step, "glue")
        yield from find_timeout_faults(step, MAX_MINUTES, "Glue")


def find_resource_faults(pipeline: Pipeline, settings: GlueSettings) -> Iterator[Fault]:
    """Yield a fault for each step that no machine of Glue can run."""
    largest = WORKERS[settings.job_type][-1]
    for step in pipeline.steps:
        size = requested_size(step, settings)
        if size is not None and step_worker(step, 1.0, settings) is None:
            allowed = (
                f"at most {largest.cores:g} cores and {largest.memory} MiB ({largest.name}), and "
                f"no GPUs, with job_type {settings.job_type}"
            )
            advice = "request less"
            if settings.job_type == PYTHON_SHELL:
                advice += f", or set the option job_type={SPARK}"
            yield size_fault(step, size, allowed, advice)
