"""Metrics of networks: sums over rows that ranks add, under Orca's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hyperplane.core.argument_checks import describe_value
from hyperplane.core.errors import Fault
from hyperplane.core.public_calls import nearest
from hyperplane.ml.estimators.metric_base import NetworkMetric, match_labels, sum_and_count
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


class Accuracy(NetworkMetric):
    """Fraction of correct classes: of scores per class, or of probabilities of one class.

    Examples
    --------
    >>> metric = Accuracy()
    >>> metric.compute(metric.update(np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([1, 1])))
    0.5
    """

    def __init__(self, zero_based_label: bool = True) -> None:
        self._first = 0 if zero_based_label else 1

    def update(self, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the correct rows and all rows."""
        if predictions.ndim == labels.ndim and predictions.shape[-1:] not in (
            (1,),
            labels.shape[-1:],
        ):
            labels = labels.reshape(labels.shape[:-1])
        classes, labels = match_labels(predictions, labels - self._first)
        return sum_and_count(classes == labels)


class SparseCategoricalAccuracy(NetworkMetric):
    """Fraction of rows whose largest score is that of the label."""

    def update(self, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the correct rows and all rows."""
        classes = predictions.argmax(-1)
        return sum_and_count(classes == labels.reshape(classes.shape))


class CategoricalAccuracy(NetworkMetric):
    """Fraction of rows whose largest score is that of a one-hot label."""

    def update(self, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the correct rows and all rows."""
        return sum_and_count(predictions.argmax(-1) == labels.argmax(-1))


class BinaryAccuracy(NetworkMetric):
    """Fraction of correct classes of probabilities of one class."""

    def update(self, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the correct rows and all rows."""
        return sum_and_count((predictions.reshape(labels.shape) >= 0.5) == (labels >= 0.5))


class Top5Accuracy(NetworkMetric):
    """Fraction of rows whose label is among the five largest scores."""

    def update(self, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the correct rows and all rows."""
        best = np.argsort(predictions, axis=-1)[..., -5:]
        return sum_and_count((best == labels.reshape(*best.shape[:-1], 1)).any(-1))


class MSE(NetworkMetric):
    """Mean squared error."""

    def update(self, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the sum of squares, and the number of values."""
        return sum_and_count((predictions.reshape(labels.shape).astype(np.float64) - labels) ** 2)


class MAE(NetworkMetric):
    """Mean absolute error."""

    def update(self, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the sum of absolute errors, and the number of values."""
        return sum_and_count(np.abs(predictions.reshape(labels.shape).astype(np.float64) - labels))


class FunctionMetric(NetworkMetric):
    """Mean of a function of a batch of predictions and labels, weighted by rows."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.function = function

    def get_name(self) -> str:
        """Return the name of the function."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def update(self, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the value times rows, and the rows."""
        return np.array([float(self.function(predictions, labels)) * len(labels), len(labels)])


#: Metrics by their lower-case names.
METRICS: dict[str, type[NetworkMetric]] = {
    kind.__name__.lower(): kind
    for kind in (
        Accuracy, SparseCategoricalAccuracy, CategoricalAccuracy, BinaryAccuracy, Top5Accuracy, MSE,
        MAE, Precision, Recall, F1Score, AUC, BinaryCrossEntropy, CategoricalCrossEntropy,
        SparseCategoricalCrossEntropy, KLDivergence, Poisson,
    )
}  # fmt: skip


def find_metric_faults(metrics: Any) -> list[Fault]:
    """Return a fault for each metric that is neither a known name nor a metric nor a function.

    Examples
    --------
    >>> [fault.advice for fault in find_metric_faults(["acuracy"])]
    ['did you mean accuracy?']
    """
    faults = []
    for each in _list_metrics(metrics):
        if isinstance(each, str) and each.lower() not in METRICS:
            near = nearest(each, METRICS)
            advice = f"did you mean {near[0]}?" if near else ""
            faults.append(Fault("metrics", repr(each), f"one of {', '.join(METRICS)}", advice))
        elif not isinstance(each, str | NetworkMetric) and not callable(each):
            faults.append(Fault("metrics", describe_value(each), "a name, a metric or a function"))
    return faults


def create_metrics(metrics: Any) -> list[NetworkMetric]:
    """Return valid metrics as objects."""
    created = []
    for each in _list_metrics(metrics):
        found = METRICS[each.lower()]() if isinstance(each, str) else each
        found = found() if isinstance(found, type) else found
        created.append(found if isinstance(found, NetworkMetric) else FunctionMetric(found))
    return created


def _list_metrics(metrics: Any) -> Sequence[Any]:
    return () if metrics is None else metrics if isinstance(metrics, list | tuple) else (metrics,)
