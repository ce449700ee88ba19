"""Orca's package of optimizers."""

from hyperplane.ml.estimators.torch_optimizers import (
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    ParallelAdam,
    RMSprop,
)

__all__ = ["SGD", "Adadelta", "Adagrad", "Adam", "Adamax", "ParallelAdam", "RMSprop"]
