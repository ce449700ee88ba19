"""Orca's module of the callback that writes checkpoints."""

from hyperplane.ml.estimators.torch_callbacks import ModelCheckpoint

__all__ = ["ModelCheckpoint"]
