"""Orca's module of metrics."""

from hyperplane.ml.estimators.network_metrics import (
    MAE,
    MSE,
    Accuracy,
    BinaryAccuracy,
    CategoricalAccuracy,
    SparseCategoricalAccuracy,
    Top5Accuracy,
)
from hyperplane.ml.estimators.probability_metrics import (
    AUC,
    BinaryCrossEntropy,
    CategoricalCrossEntropy,
    F1Score,
    KLDivergence,
    Poisson,
    Precision,
    Recall,
    SparseCategoricalCrossEntropy,
)

__all__ = [
    "AUC",
    "MAE",
    "MSE",
    "Accuracy",
    "BinaryAccuracy",
    "BinaryCrossEntropy",
    "CategoricalAccuracy",
    "CategoricalCrossEntropy",
    "F1Score",
    "KLDivergence",
    "Poisson",
    "Precision",
    "Recall",
    "SparseCategoricalAccuracy",
    "SparseCategoricalCrossEntropy",
    "Top5Accuracy",
]
