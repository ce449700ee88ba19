"""Faults of options and pipelines that Vertex AI cannot run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hyperplane.core.errors import Fault, UnknownPool
from hyperplane.jobs.definition.message_formatting import format_value, suggest_names
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.runners.container_steps import find_code_faults
from hyperplane.jobs.runners.gcp.option_checks import ReservedVariables, find_setting_faults
from hyperplane.jobs.runners.vertex.machines import step_machine, step_request
from hyperplane.jobs.runners.vertex.tuning import find_tuning_faults
from hyperplane.platforms.gcp.machine_types import find_machine, machine_names
from hyperplane.spec.settings import VertexSettings

_SECTION = "hyperplane.runners.vertex"
_RESERVED = ReservedVariables(("AIP_", "CLOUD_ML_"), ("CLUSTER_SPEC", "TF_CONFIG"), 100)


def find_option_faults(settings: VertexSettings) -> list[Fault]:
    """Return a fault for each setting that is missing, or that Vertex AI refuses."""
    faults = find_setting_faults(_SECTION, settings, _RESERVED)
    name = settings.machine_type
    if name is not None and find_machine(name) is None:
        known = machine_names(name.partition("-")[0]) or machine_names(settings.series)
        advice = suggest_names(name, known)
        allowed = f"a machine type of custom training, such as {', '.join(known)}"
        faults.append(Fault(f"{_SECTION}.machine_type", repr(name), allowed, advice))
    return faults


def find_step_faults(pipeline: Pipeline, settings: VertexSettings) -> Iterator[Fault]:
    """Yield a fault for each part of a pipeline that a container cannot run."""
    yield from find_code_faults(pipeline, settings, "vertex")
    for step in pipeline.steps:
        is_sent = settings.root is None and settings.stage == "file"
        if step.package_path is not None and not is_sent:
            package = Path(pipeline.root, step.package_path)
            if not package.is_relative_to(pipeline.root):
                allowed = f"a folder in {pipeline.root}"
                yield Fault(f"step {step.name!r}: package_path", str(package), allowed)
        if step.gang is not None:
            allowed = "a step of one process, or of type train, on vertex"
            yield Fault(f"step {step.name!r}: gang", str(step.gang), allowed)
        yield from find_tuning_faults(step)
        for name in step.secrets:
            advice = "read it in the step from Secret Manager, with its service account"
            allowed = "no secrets on vertex, whose containers would show them in the console"
            yield Fault(f"step {step.name!r}: secrets", format_value(name), allowed, advice)


def find_resource_faults(pipeline: Pipeline, settings: VertexSettings) -> Iterator[Fault]:
    """Yield a fault for each step that no machine of the settings can run."""
    for step in pipeline.steps:
        where = f"step {step.name!r}: resources"
        try:
            request = step_request(step, settings)
            machine = step_machine(step, 1.0, settings)
        except UnknownPool:  # reported for all runners, or chosen from earlier runs
            continue
        if machine is not None:
            continue
        asked = f"{request.cores:g} cores, {request.memory} MiB, {request.gpus} GPUs"
        type_ = find_machine(settings.machine_type) if settings.machine_type else None
        if type_ is not None:
            allowed = f"at most {type_.cores} cores and {type_.allocatable} MiB on {type_.name}"
            advice = "request less, or set another machine_type"
        else:
            largest = find_machine(machine_names(settings.series)[-1])
            sizes = f"{largest.cores} cores and {largest.allocatable} MiB" if largest else ""
            allowed = f"the resources of a machine of series {settings.series}, such as {sizes}"
            advice = "request less, or set the option series"
        if request.gpus:
            shown = settings.gpu_type or "no gpu_type"
            allowed += f", with {shown}"
            advice += "; for GPUs series=n1 and gpu_type=NVIDIA_TESLA_T4, or series=g2"
        yield Fault(where, asked, allowed, advice)
