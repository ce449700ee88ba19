"""Orca's module of estimators of Keras models that functions create."""

from hyperplane.orca.learn.tf2.estimator import Estimator

__all__ = ["Estimator"]
