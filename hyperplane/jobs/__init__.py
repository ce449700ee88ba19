"""Pipeline jobs: submit, run, cancel and resume them; their state is kept in a database."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hyperplane.jobs.definition.pipeline import Pipeline
    from hyperplane.jobs.definition.pipeline_file import read_pipeline
    from hyperplane.jobs.definition.step import Resources, Step
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

# Imported on first use: the processes of steps need little of this package, and no database.
_MODULES = {
    "Attempt": "states",
    "Job": "states",
    "JobHandle": "handle",
    "Pipeline": "definition.pipeline",
    "Resources": "definition.step",
    "Step": "definition.step",
    "Submitted": "submitting",
    "cancel": "submitting",
    "list_jobs": "listing",
    "read_pipeline": "definition.pipeline_file",
    "resume": "submitting",
    "submit": "handle",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'hyperplane.jobs' has no attribute {name!r}")
    return getattr(importlib.import_module(f"hyperplane.jobs.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
