"""Orca's module of schedules of learning rates."""

from hyperplane.ml.estimators.torch_optimizers import (
    Default,
    Exponential,
    MultiStep,
    Plateau,
    Poly,
    Scheduler,
    SequentialSchedule,
    Warmup,
)
from hyperplane.ml.estimators.torch_optimizers import StepSchedule as Step

__all__ = [
    "Default",
    "Exponential",
    "MultiStep",
    "Plateau",
    "Poly",
    "Scheduler",
    "SequentialSchedule",
    "Step",
    "Warmup",
]
