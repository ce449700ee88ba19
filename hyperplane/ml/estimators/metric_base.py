"""Base class of metrics of networks: sums over rows, which ranks add."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np


class NetworkMetric(ABC):
    """A metric of predictions and labels; ``update`` returns sums, ``compute`` their value."""

    #: Number of sums.
    size = 2

    def get_name(self) -> str:
        """Return the name, the key in results."""
        return type(self).__name__

    @abstractmethod
    def update(self, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the sums of a batch."""

    def compute(self, sums: np.ndarray) -> float:
        """Return the value of sums over all rows: by default the first divided by the second."""
        return float(sums[0] / sums[1]) if sums[1] else float("nan")


def sum_and_count(values: np.ndarray) -> np.ndarray:
    """Return the sum and the number of values."""
    return np.array([values.sum(dtype=np.float64), values.size], np.float64)


def match_labels(predictions: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return predicted and true classes; a single probability is class 1 from 0.5 on."""
    if predictions.ndim == labels.ndim + 1 and predictions.shape[-1] > 1:
        return predictions.argmax(-1), labels
    predictions = predictions.reshape(labels.shape)
    if predictions.dtype.kind == "f":
        predictions = predictions >= 0.5
    return predictions, labels
