"""Faults of options and pipelines that Amazon EMR cannot run."""

from __future__ import annotations

from collections.abc import Iterator

from hyperplane.core.errors import Fault
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.runners.container_steps import find_code_faults
from hyperplane.jobs.runners.driver_steps import (
    find_kind_faults,
    find_package_faults,
    find_python_faults,
    find_secret_faults,
    find_setting_faults,
    module_advice,
    requested_size,
    size_fault,
)
from hyperplane.jobs.runners.emr.requests import step_instance
from hyperplane.platforms.aws.emr_instances import INSTANCES
from hyperplane.spec.settings import EmrSettings

_SECTION = "hyperplane.runners.emr"
#: What to do for a later version of Python.
_ADVICE = (
    f'set {_SECTION}.python to python3.11, and system_packages to ["python3.11", "python3.11-pip"]'
)
_REQUIRED = {"staging": "a folder of a bucket, such as s3://bucket/folder"}
#: Settings that only a cluster of the runner has, with what they are without a value.
_OF_CLUSTERS = ("subnet", "system_packages", "python_modules", "bootstrap_actions")


def find_option_faults(settings: EmrSettings) -> list[Fault]:
    """Return a fault for each setting that is missing, or that has no effect."""
    faults = list(find_setting_faults(settings, _SECTION, _REQUIRED))
    if settings.cluster:
        allowed = "nothing with cluster, whose machines have been started"
        advice = "install it in the cluster, or omit the option cluster"
        faults += [
            Fault(f"{_SECTION}.{name}", str(getattr(settings, name)), allowed, advice)
            for name in _OF_CLUSTERS
            if getattr(settings, name)
        ]
    return [*faults, *find_package_faults(settings, _SECTION, _ADVICE)]


def find_step_faults(pipeline: Pipeline, settings: EmrSettings) -> Iterator[Fault]:
    """Yield a fault for each part of a pipeline that a step of EMR cannot run."""
    yield from find_code_faults(pipeline, settings, "emr", module_advice(_SECTION))
    for step in pipeline.steps:
        yield from find_python_faults(step, settings.python, _ADVICE)
        if step.kind != "notebook" or not settings.cluster:
            yield from find_kind_faults(step, settings, _SECTION, "EMR")
        yield from find_secret_faults(step, "emr")
        if settings.cluster and step.more_memory is not None:
            allowed = "nothing with cluster, whose machines have been started"
            advice = "omit it, or the option cluster"
            yield Fault(
                f"step {step.name!r}: more_memory", f"{step.more_memory:g}", allowed, advice
            )


def find_resource_faults(pipeline: Pipeline, settings: EmrSettings) -> Iterator[Fault]:
    """Yield a fault for each step that no machine can run; those of a cluster are not known."""
    if settings.cluster:
        return
    largest = INSTANCES[-1]
    for step in pipeline.steps:
        size = requested_size(step, settings)
        if size is not None and step_instance(step, 1.0, settings) is None:
            allowed = (
                f"at most {largest.cores:g} cores and {largest.memory} MiB, which a program has of "
                f"a machine {largest.name}, and no GPUs"
            )
            yield size_fault(step, size, allowed)
