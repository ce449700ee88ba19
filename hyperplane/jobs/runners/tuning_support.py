"""Faults of hyper-parameter tuning on runners that have no tuning jobs."""

from __future__ import annotations

from collections.abc import Iterator

from hyperplane.core.errors import Fault
from hyperplane.jobs.definition.pipeline import Pipeline


def find_tuning_faults(pipeline: Pipeline, runner: str) -> Iterator[Fault]:
    """Yield a fault for each training program with tuning, for a runner without tuning jobs."""
    for step in pipeline.steps:
        if step.tuning is not None:
            allowed = f"no value on {runner}, which has no tuning jobs"
            advice = "use the runner vertex, or run the trials with hyperplane.ml.tune_program"
            yield Fault(f"step {step.name!r}: tuning", "given", allowed, advice)
