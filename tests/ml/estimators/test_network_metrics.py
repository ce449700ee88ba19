"""Metrics of networks: equal to those of scikit-learn, also if batches are added."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from hyperplane.ml.estimators.network_metrics import METRICS, create_metrics
from hyperplane.orca.learn import metrics

RANDOM = np.random.default_rng(11)
LABELS = RANDOM.integers(0, 2, 400)
PROBABILITIES = np.clip(RANDOM.normal(0.3 + 0.3 * LABELS, 0.25), 0.001, 0.999)
SCORES = RANDOM.normal(size=(400, 4)) * 3
CLASSES = RANDOM.integers(0, 4, 400)
SOFT = np.exp(SCORES) / np.exp(SCORES).sum(1, keepdims=True)
ONE_HOT = np.eye(4)[CLASSES]


def compute(metric, predictions, labels, batch=90):
    """Return the value of a metric from the sums of batches, as ranks add them."""
    sums = np.zeros(metric.size)
    for start in range(0, len(labels), batch):
        rows = slice(start, start + batch)
        sums += metric.update(predictions[rows], labels[rows])
    return metric.compute(sums)


@pytest.mark.parametrize(
    ("metric", "predictions", "labels", "expected"),
    [
        (metrics.F1Score(), PROBABILITIES, LABELS, ("f1_score", PROBABILITIES >= 0.5)),
        (metrics.Precision(), PROBABILITIES, LABELS, ("precision_score", PROBABILITIES >= 0.5)),
        (metrics.Recall(), PROBABILITIES, LABELS, ("recall_score", PROBABILITIES >= 0.5)),
        (metrics.BinaryCrossEntropy(), PROBABILITIES, LABELS, ("log_loss", PROBABILITIES)),
        (metrics.SparseCategoricalCrossEntropy(), SOFT, CLASSES, ("log_loss", SOFT)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_equal_those_of_scikit_learn(metric, predictions, labels, expected):
    name, given = expected
    wanted = getattr(sklearn_metrics, name)(labels, given)
    assert compute(metric, predictions, labels) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("name", ["precision", "recall", "f1"])
def test_counts_of_more_than_two_classes_are_added(name):
    metric = {"precision": metrics.Precision, "recall": metrics.Recall, "f1": metrics.F1Score}
    wanted = getattr(sklearn_metrics, f"{name}_score")(CLASSES, SCORES.argmax(1), average="micro")
    assert compute(metric[name](), SCORES, CLASSES) == pytest.approx(wanted)


@pytest.mark.parametrize(
    "predictions",
    [
        PROBABILITIES,
        np.log(PROBABILITIES / (1 - PROBABILITIES)),
        np.stack([1 - PROBABILITIES, PROBABILITIES], axis=1),
        np.log(np.stack([1 - PROBABILITIES, PROBABILITIES], axis=1)),
        -1 / PROBABILITIES,
    ],
    ids=["probabilities", "logits", "two classes", "logarithms", "negative"],
)
def test_auc_does_not_depend_on_the_scale_of_the_scores(predictions):
    wanted = sklearn_metrics.roc_auc_score(LABELS, PROBABILITIES)
    assert compute(metrics.AUC(1000), predictions, LABELS) == pytest.approx(wanted, abs=2e-3)
    assert compute(metrics.AUC(1000), predictions.astype(np.float32), LABELS) > 0.7


def test_auc_of_infinite_scores_and_of_one_class():
    scores = np.array([-np.inf, -1e30, 0.5, 1e30, np.inf])
    assert compute(metrics.AUC(), scores, np.array([0, 0, 1, 1, 1])) == 1.0
    assert np.isnan(compute(metrics.AUC(), scores, np.ones(5)))


def test_other_values_equal_their_definitions():
    entropy = -np.log(SOFT[np.arange(400), CLASSES]).mean()
    assert compute(metrics.CategoricalCrossEntropy(), SOFT, ONE_HOT) == pytest.approx(entropy)
    other = SOFT[::-1]
    divergence = (other * np.log(other / SOFT)).sum(1).mean()
    assert compute(metrics.KLDivergence(), SOFT, other) == pytest.approx(divergence, rel=1e-3)
    poisson = (PROBABILITIES - LABELS * np.log(PROBABILITIES)).mean()
    assert compute(metrics.Poisson(), PROBABILITIES[:, None], LABELS) == pytest.approx(
        poisson, rel=1e-5
    )


def test_all_metrics_of_the_module_have_names():
    assert {name.lower() for name in metrics.__all__} == set(METRICS)
    assert [type(each).__name__ for each in create_metrics(["f1score", metrics.AUC])] == [
        "F1Score", "AUC",
    ]  # fmt: skip
