"""Pipeline jobs: submitted here, carried on by a process of their own, kept in a database."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hyperplane.jobs.definition.models import Pipeline, Resources, Step
    from hyperplane.jobs.definition.pipeline_file import read_pipeline
    from hyperplane.jobs.handle import JobHandle, submit
    from hyperplane.jobs.listing import list_jobs
    from hyperplane.jobs.states import Attempt, Job
    from hyperplane.jobs.submitting import Submitted, cancel, resume

__all__ = [
    "Attempt",
    "Job",
    "JobHandle",
    "Pipeline",
    "Resources",
    "Step",
    "Submitted",
    "cancel",
    "list_jobs",
    "read_pipeline",
    "resume",
    "submit",
]

# Imported on first use: the processes of steps need little of it, and no database.
_HOMES = {
    "Attempt": "states",
    "Job": "states",
    "JobHandle": "handle",
    "Pipeline": "definition.models",
    "Resources": "definition.models",
    "Step": "definition.models",
    "Submitted": "submitting",
    "cancel": "submitting",
    "list_jobs": "listing",
    "read_pipeline": "definition.pipeline_file",
    "resume": "submitting",
    "submit": "handle",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hyperplane.jobs' has no attribute {name!r}")
    return getattr(importlib.import_module(f"hyperplane.jobs.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
