"""Checks of metrics, distances, kernels and scorers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import sklearn.linear_model
import sklearn.metrics
from ml.dask_ml_checks.check import Check, Data, close

_CHUNKS = "dask_ml.metrics.regression"
_AVERAGE = "`dask.array.average((y_true - y_pred) ** 2, weights=weights)`"
_COMPUTED = "scikit-learn's `r2_score` of the three computed arrays"
_NO_WEIGHTS = "'sample_weight' is not supported"
_CLASSES = "dask_ml.metrics.classification"


def _metric(name: str) -> Callable[[Data], None]:
    def run(data: Data) -> None:
        import dask_ml.metrics as ours

        true, known, guess = _targets(name, data)
        expected = getattr(sklearn.metrics, name)(true, guess)
        for predicted in (
            data.to_dask(guess),
            dd.from_array(guess, chunksize=200).to_dask_array(),  # of unknown chunk sizes
        ):
            close(getattr(ours, name)(known, predicted), expected)

    return run


def _targets(name: str, data: Data) -> tuple[np.ndarray, Any, np.ndarray]:
    true, known, guess = data.targets, data.r, np.abs(data.rows[:, 0])
    return (np.abs(true), abs(known), guess) if name.endswith("log_error") else (true, known, guess)


def _metric_of_outputs(name: str) -> Callable[[Data], None]:
    def run(data: Data) -> None:
        import dask_ml.metrics as ours

        true, guess = np.abs(data.rows[:, :2]), np.abs(data.rows[:, 2:4])
        for multioutput in ("raw_values", "uniform_average"):
            expected = getattr(sklearn.metrics, name)(true, guess, multioutput=multioutput)
            result = getattr(ours, name)(
                data.to_dask(true), data.to_dask(guess), multioutput=multioutput
            )
            close(result, expected)

    return run


def _root_mean_squared_error(data: Data) -> None:
    from dask_ml.metrics import mean_squared_error

    guess = data.rows[:, 0]
    expected = sklearn.metrics.root_mean_squared_error(data.targets, guess)
    close(mean_squared_error(data.r, data.to_dask(guess), squared=False), expected)


def _weighted_metric(name: str) -> Callable[[Data], None]:
    def run(data: Data) -> None:
        import dask_ml.metrics as ours

        true, known, guess = _targets(name, data)
        expected = getattr(sklearn.metrics, name)(true, guess, sample_weight=data.weights)
        weights = data.to_dask(data.weights)
        close(getattr(ours, name)(known, data.to_dask(guess), sample_weight=weights), expected)

    return run


def _weighted_average(data: Data) -> None:
    guess = data.rows[:, 0]
    expected = sklearn.metrics.mean_squared_error(data.targets, guess, sample_weight=data.weights)
    errors = (data.r - data.to_dask(guess)) ** 2
    close(da.average(errors, weights=data.to_dask(data.weights)), expected)


def _computed_r2_score(data: Data) -> None:
    weights = data.to_dask(data.weights)
    true, guess, computed = dask.compute(data.r, data.X[:, 0], weights)
    score = sklearn.metrics.r2_score(true, guess, sample_weight=computed)
    residual = np.average((data.targets - data.rows[:, 0]) ** 2, weights=data.weights)
    mean = np.average(data.targets, weights=data.weights)
    close(score, 1 - residual / np.average((data.targets - mean) ** 2, weights=data.weights))


def _lazy_metric(data: Data) -> None:
    from dask_ml.metrics import accuracy_score, mean_squared_error, r2_score

    guess = data.to_dask(data.rows[:, 0])
    for metric in (mean_squared_error, r2_score):
        score = metric(data.r, guess, compute=False)
        assert hasattr(score, "dask")
        close(score, getattr(sklearn.metrics, metric.__name__)(data.targets, data.rows[:, 0]))
    assert hasattr(accuracy_score(data.y, data.y, compute=False), "dask")


def _accuracy(normalize: bool, weighted: bool) -> Callable[[Data], None]:
    def run(data: Data) -> None:
        from dask_ml.metrics import accuracy_score

        guess = np.where(data.rows[:, 0] > 0, 1, 0)
        weights = data.weights if weighted else None
        expected = sklearn.metrics.accuracy_score(
            data.classes, guess, normalize=normalize, sample_weight=weights
        )
        result = accuracy_score(
            data.y,
            data.to_dask(guess),
            normalize=normalize,
            sample_weight=data.to_dask(weights) if weighted else None,
        )
        close(result, expected)

    return run


def _accuracy_of_unknown_chunks(data: Data) -> None:
    from dask_ml.metrics import accuracy_score

    guess = np.where(data.rows[:, 0] > 0, 1, 0)
    predicted = dd.from_array(guess, chunksize=200).to_dask_array()
    close(accuracy_score(data.y, predicted), sklearn.metrics.accuracy_score(data.classes, guess))


def _log_loss(normalize: bool = True, weighted: bool = False) -> Callable[[Data], None]:
    def run(data: Data) -> None:
        from dask_ml.metrics import log_loss

        share = np.clip(np.abs(data.rows[:, 0]) / 3, 0.01, 0.99)
        guess = np.stack([1 - share, share], axis=1)
        weights = data.weights if weighted else None
        expected = sklearn.metrics.log_loss(
            data.classes, guess, normalize=normalize, sample_weight=weights
        )
        result = log_loss(
            data.y,
            data.to_dask(guess),
            normalize=normalize,
            sample_weight=data.to_dask(weights) if weighted else None,
        )
        close(result, expected)
        close(log_loss(data.classes, guess, normalize=normalize, sample_weight=weights), expected)

    return run


def _pairwise(name: str, **options: Any) -> Callable[[Data], None]:
    def run(data: Data) -> None:
        import dask_ml.metrics.pairwise as ours

        few = data.rows[:3]
        result = getattr(ours, name)(data.X, few, **options)
        assert result.numblocks[0] == 2
        close(result, getattr(sklearn.metrics.pairwise, name)(data.rows, few, **options))

    return run


def _nearest(data: Data) -> None:
    from dask_ml.metrics import pairwise_distances_argmin_min

    few = data.rows[:3]
    expected = sklearn.metrics.pairwise_distances_argmin_min(data.rows, few)
    for ours, theirs in zip(pairwise_distances_argmin_min(data.X, few), expected, strict=True):
        close(ours, theirs)


def _scorer(scoring: str) -> Callable[[Data], None]:
    def run(data: Data) -> None:
        from dask_ml.metrics import get_scorer
        from dask_ml.wrappers import ParallelPostFit

        of_classes = scoring in ("accuracy", "neg_log_loss")
        kind = "LogisticRegression" if of_classes else "LinearRegression"
        true, known = (data.classes, data.y) if of_classes else (data.targets, data.r)
        model = getattr(sklearn.linear_model, kind)().fit(data.rows, true)
        score = get_scorer(scoring)(ParallelPostFit(model), data.X, known)
        close(score, sklearn.metrics.get_scorer(scoring)(model, data.rows, true))

    return run


def _check_scoring(data: Data) -> None:
    from dask_ml.metrics import accuracy_score, check_scoring
    from dask_ml.wrappers import ParallelPostFit

    model = sklearn.linear_model.LogisticRegression().fit(data.rows, data.classes)
    scorer = check_scoring(ParallelPostFit(model), "accuracy")
    close(scorer(ParallelPostFit(model), data.X, data.y), model.score(data.rows, data.classes))
    try:
        check_scoring(model, accuracy_score)
    except ValueError as error:
        assert "metric function rather than a scorer" in str(error)  # noqa: PT017
    else:
        raise AssertionError("a metric was accepted as a scorer")


CHECKS: dict[str, Check] = {
    "metrics.accuracy_score": Check(_accuracy(normalize=True, weighted=False)),
    "metrics.accuracy_score with normalize=False": Check(
        _accuracy(normalize=False, weighted=False)
    ),
    "metrics.accuracy_score with sample_weight": Check(_accuracy(normalize=True, weighted=True)),
    "metrics.accuracy_score with both": Check(_accuracy(normalize=False, weighted=True)),
    "metrics.accuracy_score of predictions for a dataframe": Check(
        _accuracy_of_unknown_chunks, _CLASSES
    ),
    "metrics.log_loss": Check(_log_loss(), _CLASSES),
    "metrics.log_loss with normalize=False": Check(_log_loss(normalize=False), _CLASSES),
    "metrics.log_loss with sample_weight": Check(_log_loss(weighted=True), _CLASSES),
    **{
        f"metrics.{name}": Check(_metric(name), _CHUNKS)
        for name in (
            "r2_score",
            "mean_squared_error",
            "mean_absolute_error",
            "mean_absolute_percentage_error",
            "mean_squared_log_error",
        )
    },
    **{
        f"metrics.{name} of several outputs": Check(_metric_of_outputs(name))
        for name in ("mean_squared_error", "mean_absolute_error")
    },
    "metrics.r2_score of several outputs": Check(_metric_of_outputs("r2_score"), _CHUNKS),
    "metrics.mean_squared_error with squared=False": Check(_root_mean_squared_error),
    "metrics.mean_squared_error with sample_weight": Check(
        _weighted_metric("mean_squared_error"),
        instead=_AVERAGE,
        error=_NO_WEIGHTS,
        alternative=_weighted_average,
    ),
    "metrics.r2_score with sample_weight": Check(
        _weighted_metric("r2_score"),
        instead=_COMPUTED,
        error=_NO_WEIGHTS,
        alternative=_computed_r2_score,
    ),
    "metrics.r2_score and others with compute=False": Check(_lazy_metric, _CHUNKS),
    "metrics.euclidean_distances": Check(_pairwise("euclidean_distances")),
    "metrics.pairwise_distances": Check(_pairwise("pairwise_distances", metric="cityblock")),
    "metrics.pairwise_distances_argmin_min": Check(_nearest),
    **{
        f"metrics.pairwise.{name}": Check(_pairwise(name))
        for name in ("linear_kernel", "rbf_kernel", "polynomial_kernel", "sigmoid_kernel")
    },
    "metrics.pairwise.pairwise_kernels": Check(_pairwise("pairwise_kernels", metric="rbf")),
    **{
        f"metrics.get_scorer, {scoring}": Check(_scorer(scoring))
        for scoring in ("accuracy", "neg_mean_squared_error")
    },
    "metrics.get_scorer, r2": Check(_scorer("r2"), _CHUNKS),
    "metrics.get_scorer, neg_log_loss": Check(_scorer("neg_log_loss"), "dask_ml.metrics.scorer"),
    "metrics.check_scoring": Check(_check_scoring),
}
