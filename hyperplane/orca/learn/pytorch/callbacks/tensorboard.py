"""Orca's module of the callback for TensorBoard."""

from hyperplane.ml.estimators.torch_callbacks import TensorBoardCallback

__all__ = ["TensorBoardCallback"]
