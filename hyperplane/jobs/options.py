"""What may be said of a job beside its pipeline, and what is wrong with it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from hyperplane import config
from hyperplane.errors import Fault, RequestError
from hyperplane.jobs import runners
from hyperplane.jobs.definition.models import Pipeline
from hyperplane.jobs.definition.wording import suggest_names
from hyperplane.units import in_seconds

#: The documented form of a job's name.
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_MAX_TIMEOUT = 86_400
#: Characters of a job's label.
_MAX_LABEL_LENGTH = 64
#: The documented names of kinds of machines; a site has others, too.
JOB_TYPES = (
    "minibasic", "basic", "dl", "deep", "gpu", "gpu-full", "lite", "triton", "rayspark", "ray",
    "crypto", "climate", "sas", "rstat", "rust", "custom", "experimental",
)  # fmt: skip


def option_faults(
    name: Any = None, timeout: Any = None, active_timeout: Any = None, max_retries: Any = None
) -> list[Fault]:
    """What is wrong with options of a job; None says nothing.

    Examples
    --------
    >>> [fault.where for fault in option_faults("no spaces", timeout=-2)]
    ['timeout', 'name']
    """
    faults = []
    for field, value in {"timeout": timeout, "active_timeout": active_timeout}.items():
        if value is not None and not _is_timeout(in_seconds(value)):
            allowed = f"seconds, more than 0 and up to {_MAX_TIMEOUT}, or -1 for no limit"
            allowed += "; or text such as '10 min'"
            faults.append(Fault(field, repr(value), allowed))
    if max_retries is not None and not _is_retry_count(max_retries):
        faults.append(Fault("max_retries", repr(max_retries), "a whole number from 0 to 10"))
    if name is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
        allowed = "up to 63 letters, digits and . _ -, with a letter or digit at both ends"
        faults.append(Fault("name", repr(name), allowed))
    return faults


def label_faults(label: Any) -> list[Fault]:
    """What is wrong with a job's label, so that it cannot be kept."""
    if isinstance(label, str) and label.isprintable() and 0 < len(label) <= _MAX_LABEL_LENGTH:
        return []
    allowed = f"text of 1 to {_MAX_LABEL_LENGTH} characters in one line"
    return [Fault("job_type", repr(label)[:80], allowed)]


def label_warnings(label: str) -> list[str]:
    """That a label is no documented one and no pool: it may be a slip, or the site's own.

    Examples
    --------
    >>> label_warnings("basic"), label_warnings("16_16")
    ([], [])
    >>> print(label_warnings("tritn")[0])
    job_type 'tritn' is neither a documented one nor a pool: did you mean triton? It is a label
    """
    if label in JOB_TYPES or _pool_fault(label) is None:
        return []
    near = suggest_names(label, [*JOB_TYPES, *config.pools()])
    advice = near or f"they are {', '.join(JOB_TYPES)}."
    said = f"job_type {label!r} is neither a documented one nor a pool"
    return [f"{said}: {advice} It is a label"]


def runner_faults(
    runner: str, options: Mapping[str, Any], pipeline: Pipeline | None
) -> list[Fault]:
    """A runner that there is not, that has nothing to run steps with, or cannot run these."""
    try:
        found = runners.create_runner(runner, os.environ, runners.resolve_options(runner, options))
    except RequestError as error:
        return list(error.faults)
    missing = found.unavailable_reason()
    faults = [Fault("runner", repr(runner), "a runner that works here", missing)] if missing else []
    return faults + (found.find_unsupported(pipeline) if pipeline is not None else [])


def pool_faults(pipeline: Pipeline) -> list[Fault]:
    """Pools that steps name, for themselves or for their cluster, and that there are not."""
    faults = []
    for step in pipeline.steps:
        named = {
            "resources.pool": step.resources.pool,
            "cluster.pool": (step.cluster or {}).get("pool"),
        }
        for field, name in named.items():
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
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10
