"""Orca's package of estimators of PyTorch."""

from hyperplane.ml.estimators.estimator import Estimator

__all__ = ["Estimator"]
