"""Orca's module of the estimator of PyTorch."""

from hyperplane.ml.estimators.estimator import Estimator

__all__ = ["Estimator"]
