"""Metrics of probabilities, and of scores of classes, under Orca's names."""

from __future__ import annotations

import numpy as np

from hyperplane.ml.estimators.metric_base import NetworkMetric, match_labels

#: Probabilities are at least this far from 0 and 1 in logarithms.
_LEAST = 1e-7


def _clip(predictions: np.ndarray) -> np.ndarray:
    return np.clip(predictions.astype(np.float64), _LEAST, 1 - _LEAST)


class BinaryCrossEntropy(NetworkMetric):
    """Mean cross entropy of probabilities of one class and labels 0 and 1.

    Examples
    --------
    >>> metric, rows = BinaryCrossEntropy(), (np.array([[0.6, 0.4]]), np.array([[0, 1]]))
    >>> round(metric.compute(metric.update(*rows)), 4)
    0.9163
    """

    def update(self, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the sum over values, and their number."""
        p = _clip(predictions.reshape(labels.shape))
        entropy = -labels * np.log(p) - (1 - labels.astype(np.float64)) * np.log(1 - p)
        return np.array([entropy.sum(), labels.size])


class CategoricalCrossEntropy(NetworkMetric):
    """Mean cross entropy of probabilities of classes and one-hot labels."""

    def update(self, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the sum over rows, and their number."""
        entropy = -np.log(_clip(predictions.reshape(labels.shape))) * labels
        return np.array([entropy.sum(), len(labels)])


class SparseCategoricalCrossEntropy(NetworkMetric):
    """Mean cross entropy of probabilities of classes and their numbers."""

    def update(self, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the sum over rows, and their number."""
        numbers = labels.reshape(*predictions.shape[:-1], 1).astype(np.int64)
        chosen = np.take_along_axis(_clip(predictions), numbers, axis=-1)
        return np.array([-np.log(chosen).sum(), chosen.size])


class KLDivergence(NetworkMetric):
    """Mean Kullback-Leibler divergence of rows of predicted from rows of true probabilities."""

    def update(self, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the sum over rows, and their number."""
        p, q = _clip(predictions.reshape(labels.shape)), _clip(labels)
        return np.array([(q * np.log(q / p)).sum(), len(labels)])


class Poisson(NetworkMetric):
    """Mean Poisson loss: prediction minus label times the logarithm of the prediction."""

    def update(self, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the sum over values, and their number."""
        p = predictions.reshape(labels.shape).astype(np.float64)
        return np.array([(p - labels * np.log(p + _LEAST)).sum(), labels.size])


class Precision(NetworkMetric):
    """Fraction of the predicted positive rows that are positive.

    With scores of two classes, class 1 is positive. With more classes, the counts of all classes
    are added (micro average), as in Orca; the result equals the accuracy.
    """

    def update(self, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the true positive and the predicted positive rows."""
        return _count_positive(predictions, labels)[[0, 1]]


class Recall(NetworkMetric):
    """Fraction of the positive rows that are predicted as positive; see :class:`Precision`."""

    def update(self, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the true positive and all positive rows."""
        return _count_positive(predictions, labels)[[0, 2]]


class F1Score(NetworkMetric):
    """Harmonic mean of :class:`Precision` and :class:`Recall`.

    Examples
    --------
    >>> metric, rows = F1Score(), (np.array([0.9, 0.8, 0.1]), np.array([1, 0, 1]))
    >>> metric.compute(metric.update(*rows))
    0.5
    """

    size = 3

    def update(self, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the true positive, the predicted positive and all positive rows."""
        return _count_positive(predictions, labels)

    def compute(self, sums: np.ndarray) -> float:
        """Return the harmonic mean; NaN without positive rows."""
        count = sums[1] + sums[2]
        return float(2 * sums[0] / count) if count else float("nan")


def _count_positive(predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    has_classes = predictions.ndim == labels.ndim + 1 and predictions.shape[-1] > 2
    classes, labels = match_labels(predictions, labels)
    if has_classes:
        return np.array([(classes == labels).sum(), labels.size, labels.size], np.float64)
    counts = [(classes == 1) & (labels == 1), classes == 1, labels == 1]
    return np.array([each.sum() for each in counts], np.float64)


class AUC(NetworkMetric):
    """Area under the ROC curve of probabilities or scores.

    Rows are counted in ``threshold_num`` intervals from 0 to 1, and in as many below 0 and above 1.
    The area is exact if no interval has both positive and negative rows. With scores of two
    classes, their difference is the value of a row.

    Parameters
    ----------
    threshold_num : int
        Number of intervals from 0 to 1.

    Examples
    --------
    >>> metric = AUC()
    >>> metric.compute(metric.update(np.array([0.1, 0.4, 0.6, 0.9]), np.array([0, 0, 1, 1])))
    1.0
    >>> metric.compute(metric.update(np.array([-3.0, -2.0, 5.0]), np.array([0, 1, 1])))
    1.0
    """

    def __init__(self, threshold_num: int = 200) -> None:
        self._count = 3 * threshold_num
        self._edges = np.concatenate(
            [
                np.linspace(-1, 0, threshold_num + 1)[:-1],
                np.linspace(0, 1, threshold_num + 1),
                np.linspace(1, 2, threshold_num + 1)[1:],
            ]
        )
        self.size = 2 * self._count

    def update(self, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return histograms of the values of positive and negative rows."""
        if predictions.ndim == labels.ndim + 1 and predictions.shape[-1] == 2:
            predictions = predictions[..., 1] - predictions[..., 0]
        chosen = _limit(predictions.reshape(labels.shape).astype(np.float64))
        groups = [chosen[labels == each] for each in (1, 0)]
        return np.concatenate([np.histogram(g, self._edges)[0] for g in groups]).astype(float)

    def compute(self, sums: np.ndarray) -> float:
        """Return the area; a pair of rows in one interval counts as half."""
        positive, negative = sums[: self._count], sums[self._count :]
        below = np.cumsum(negative) - negative
        pairs = positive.sum() * negative.sum()
        return float((positive * (below + negative / 2)).sum() / pairs) if pairs else float("nan")


def _limit(values: np.ndarray) -> np.ndarray:
    """Return values from -1 to 2 in the same order; those from 0 to 1 do not change."""
    with np.errstate(invalid="ignore", divide="ignore"):
        below = np.where(np.isneginf(values), -1, values / (1 - values))
        above = np.where(np.isposinf(values), 2, 2 - 1 / values)
    return np.where(values < 0, below, np.where(values > 1, above, values))
