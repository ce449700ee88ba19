"""Orca's package of callbacks of PyTorch."""

from hyperplane.ml.estimators.torch_callbacks import Callback, MainCallback

__all__ = ["Callback", "MainCallback"]
