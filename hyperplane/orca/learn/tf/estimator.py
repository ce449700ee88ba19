"""Orca's module of estimators of compiled Keras models."""

from hyperplane.ml.estimators.estimator import Estimator

__all__ = ["Estimator"]
