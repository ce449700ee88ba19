"""Orca's module of the base class of callbacks."""

from hyperplane.ml.estimators.torch_callbacks import Callback

__all__ = ["Callback"]
