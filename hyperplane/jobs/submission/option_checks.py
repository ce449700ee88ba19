"""Check the options of a job: name, label, timeouts, retries, runner and pools."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from hyperplane import config
from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.units import format_bytes, gb_to_bytes, in_seconds, plural
from hyperplane.jobs.definition.field_types import MAX_RETRIES
from hyperplane.jobs.definition.message_formatting import suggest_names
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step_rules import AUTO
from hyperplane.jobs.execution.automatic_pool import uses_auto
from hyperplane.jobs.runners.registry import create_runner, resolve_options
from hyperplane.jobs.submission.step_clusters import find_step_cluster_faults
from hyperplane.platforms.local import machine
from hyperplane.platforms.local.gpus import detect_gpus

#: Documented form of the name of a job or schedule, and its description for messages.
NAME_PATTERN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
NAME_FORM = "up to 63 letters, digits and . _ -, beginning and ending with a letter or digit"
_MAX_TIMEOUT = 86_400
#: Maximum characters of a job's label.
_MAX_LABEL_LENGTH = 64
#: What happens to a step that asks for more of a resource than this machine has.
_CONSEQUENCES = {
    "ram_gb": "it runs alone, and may run out of memory",
    "cores": "it runs alone, and takes longer",
    "gpus": "it gets no more, and may fail",
}
#: Documented names of machine types; a site may have others.
JOB_TYPES = (
    "minibasic", "basic", "dl", "deep", "gpu", "gpu-full", "lite", "triton", "rayspark", "ray",
    "crypto", "climate", "sas", "rstat", "rust", "custom", "experimental",
)  # fmt: skip


def option_faults(
    name: Any = None, timeout: Any = None, active_timeout: Any = None, max_retries: Any = None
) -> list[Fault]:
    """Return the faults of a job's options; None means not given.

    Examples
    --------
    >>> [fault.where for fault in option_faults("no spaces", timeout=-2)]
    ['timeout', 'name']
    """
    faults = []
    for field, value in {"timeout": timeout, "active_timeout": active_timeout}.items():
        if value is not None and not _is_timeout(in_seconds(value)):
            allowed = f"seconds above 0 and up to {_MAX_TIMEOUT}, text such as '10 min', "
            allowed += "or -1 for no limit"
            faults.append(Fault(field, repr(value), allowed))
    if max_retries is not None and not _is_retry_count(max_retries):
        faults.append(
            Fault("max_retries", repr(max_retries), f"a whole number from 0 to {MAX_RETRIES}")
        )
    if name is not None and not (isinstance(name, str) and NAME_PATTERN.fullmatch(name)):
        faults.append(Fault("name", repr(name), NAME_FORM))
    return faults


def label_faults(label: Any) -> list[Fault]:
    """Return the faults of a job's label."""
    if isinstance(label, str) and label.isprintable() and 0 < len(label) <= _MAX_LABEL_LENGTH:
        return []
    allowed = f"text of 1 to {_MAX_LABEL_LENGTH} characters in one line"
    return [Fault("job_type", repr(label)[:80], allowed)]


def label_warnings(label: str) -> list[str]:
    """Return a warning if a label is neither a documented one nor a pool.

    Examples
    --------
    >>> label_warnings("basic"), label_warnings("16_16")
    ([], [])
    >>> print(label_warnings("tritn")[0])
    job_type 'tritn' is neither a documented type nor a pool: did you mean triton? Kept as a label
    """
    if label in JOB_TYPES or _pool_fault(label) is None:
        return []
    suggestion = suggest_names(label, [*JOB_TYPES, *config.pools()])
    advice = suggestion or f"the documented types are {', '.join(JOB_TYPES)}."
    problem = f"job_type {label!r} is neither a documented type nor a pool"
    return [f"{problem}: {advice} Kept as a label"]


def machine_warnings(pipeline: Pipeline) -> list[str]:
    """Return a warning for each resource of a step of which this machine has less."""
    asks_gpus = any(step.resources.gpus for step in pipeline.steps)
    present: dict[str, float] = {
        "ram_gb": machine.total_ram(),
        "cores": machine.cores(),
        "gpus": len(detect_gpus().visible) if asks_gpus else 0,
    }
    warnings = []
    for step in pipeline.steps:
        ranks = max(1, step.gang_size)
        asked = {
            "ram_gb": gb_to_bytes((step.resources.ram_gb or 0.0) * ranks),
            "cores": round((step.resources.cores or 0.0) * ranks, 3),
            "gpus": step.resources.gpus * ranks,
        }
        gang = f" x gang of {step.gang_size}" if step.gang_size > 1 else ""
        for field, amount in asked.items():
            if amount > present[field]:
                warnings.append(
                    f"step {step.name!r} asks for {_format_amount(field, amount)} "
                    f"(resources.{field}{gang}), but this machine has "
                    f"{_format_amount(field, present[field])}: {_CONSEQUENCES[field]}. "
                    "Ask for less, or choose another runner"
                )
    return warnings


def _format_amount(field: str, amount: float) -> str:
    if field == "ram_gb":
        return format_bytes(int(amount))
    noun = {"cores": "core", "gpus": "GPU"}[field]
    return plural(int(amount), noun) if amount == int(amount) else f"{amount:g} {noun}s"


def runner_faults(
    runner: str, options: Mapping[str, Any], pipeline: Pipeline | None
) -> list[Fault]:
    """Return the faults of a runner that is unknown, unavailable or cannot run a pipeline."""
    try:
        instance = create_runner(runner, os.environ, resolve_options(runner, options))
    except RequestError as error:
        return list(error.faults)
    reason = instance.unavailable_reason()
    faults = [Fault("runner", repr(runner), "an available runner", reason)] if reason else []
    if pipeline is None:
        return faults
    # Runners of other packages may not know gangs, and would run one process.
    if not getattr(instance, "runs_gangs", False):
        faults += [
            Fault(
                f"step {step.name!r}: {'type' if step.kind == 'train' else 'gang'}",
                "train" if step.kind == "train" else str(step.gang),
                f"a step of one process on the runner {runner}",
            )
            for step in pipeline.steps
            if step.gang_size
        ]
    faults += find_step_cluster_faults(instance, pipeline)
    return faults + instance.find_unsupported(pipeline)


def pool_faults(pipeline: Pipeline) -> list[Fault]:
    """Return faults for unknown pools that steps name, for themselves or their cluster."""
    faults = []
    if any(map(uses_auto, pipeline.steps)):
        default = config.jobs().default_pool
        if AUTO not in config.pools() and (fault := _pool_fault(default)) is not None:
            where = "hyperplane.jobs.default_pool"
            faults.append(Fault(where, fault.asked, fault.allowed, fault.advice))
    for step in pipeline.steps:
        named = {
            "resources.pool": step.resources.pool,
            "cluster.pool": (step.cluster or {}).get("pool"),
        }
        for field, name in named.items():
            if name == AUTO:
                continue  # earlier runs choose it
            if isinstance(name, str) and (fault := _pool_fault(name)) is not None:
                where = f"step {step.name!r}: {field}"
                faults.append(Fault(where, fault.asked, fault.allowed, fault.advice))
    return faults


def _pool_fault(name: str) -> Fault | None:
    try:
        config.get_pool(name)
    except RequestError as error:
        return error.faults[0]
    return None


def _is_timeout(value: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and (value == -1 or 0 < value <= _MAX_TIMEOUT)


def _is_retry_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_RETRIES
