"""Faults of options and pipelines that Cloud Run cannot run."""

from __future__ import annotations

from collections.abc import Iterator

from hyperplane.core.errors import Fault, UnknownPool
from hyperplane.core.units import format_number
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.runners.cloud_run.requests import step_request, task_size
from hyperplane.jobs.runners.container_secrets import find_secret_faults
from hyperplane.jobs.runners.container_steps import find_code_faults
from hyperplane.jobs.runners.gcp.option_checks import ReservedVariables, find_setting_faults
from hyperplane.platforms.gcp.cloud_run_sizes import GPU_SECONDS, GPU_TYPE, LARGEST, MAX_SECONDS
from hyperplane.spec.settings import CloudRunSettings

_SECTION = "hyperplane.runners.cloud_run"
_RESERVED = ReservedVariables(
    ("CLOUD_RUN_", "X_GOOGLE_"), ("PORT", "K_SERVICE", "K_REVISION", "K_CONFIGURATION"), 1000
)
#: What names a value in the Secret Manager, for messages.
_SECRET = "SECRET:VERSION"  # noqa: S105 - the form of a name


def find_option_faults(settings: CloudRunSettings) -> list[Fault]:
    """Return a fault for each setting that is missing, or that Cloud Run refuses."""
    return find_setting_faults(_SECTION, settings, _RESERVED)


def find_step_faults(pipeline: Pipeline, settings: CloudRunSettings) -> Iterator[Fault]:
    """Yield a fault for each part of a pipeline that a container cannot run."""
    yield from find_code_faults(pipeline, settings, "cloud-run")
    yield from find_secret_faults(pipeline, settings, _SECTION, "Cloud Run", _SECRET)


def find_resource_faults(pipeline: Pipeline, settings: CloudRunSettings) -> Iterator[Fault]:
    """Yield a fault for each step that needs a larger container, or more time, than there is."""
    for step in pipeline.steps:
        try:
            request, size = step_request(step, settings), task_size(step, 1.0, settings)
        except UnknownPool:  # reported for all runners, or chosen from earlier runs
            continue
        if size is None:
            allowed = f"at most {LARGEST}, and one GPU of type {GPU_TYPE}"
            advice = "request less, or use another runner, such as vertex"
            yield Fault(f"step {step.name!r}: resources", request.describe(), allowed, advice)
        longest = GPU_SECONDS if request.gpus else MAX_SECONDS
        if step.timeout is not None and step.timeout > longest:
            with_gpu = " with a GPU" * bool(request.gpus)
            allowed = f"at most {longest} s, the longest time of a task{with_gpu} on Cloud Run"
            where = f"step {step.name!r}: timeout"
            yield Fault(where, f"{format_number(step.timeout)} s", allowed)
