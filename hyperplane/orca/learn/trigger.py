"""Orca's module of triggers of checkpoints."""

from hyperplane.ml.estimators.triggers import EveryEpoch, SeveralIteration

__all__ = ["EveryEpoch", "SeveralIteration"]
