"""Orca's module of the callback with the passes of a step."""

from hyperplane.ml.estimators.torch_callbacks import MainCallback

__all__ = ["MainCallback"]
