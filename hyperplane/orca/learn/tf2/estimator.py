"""Orca's module of estimators of Keras models."""

from hyperplane.ml.estimators.estimator import Estimator

__all__ = ["Estimator"]
