"""Corrections of the metrics and scorers of dask-ml."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hyperplane.core.argument_checks import is_one_of
from hyperplane.core.public_calls import warn_caller
from hyperplane.ml.dask_ml_patches.replacement import replace


def correct_regression_metrics(module: Any) -> None:
    """Let metrics compare predictions of unknown chunk sizes with labels of known ones.

    Fault: since Dask 2025.2 arrays of shapes ``(nan,)`` and ``(n,)`` are not broadcast, and
    ``r2_score`` assigns to masked elements of such an array. Affects ``r2_score``,
    ``mean_squared_error``, ``mean_absolute_error`` and others, and so ``LinearRegression.score``.
    Remove it when dask-ml's tests of these metrics pass with the current Dask.
    ``mean_absolute_percentage_error`` also divides labels near zero by a number that is too small.
    """
    for name in ("mean_squared_error", "mean_absolute_error", "mean_squared_log_error"):
        replace(module, name, _with_equal_chunks(getattr(module, name)))
    for name, scores in {
        "r2_score": _r2_scores,
        "mean_absolute_percentage_error": _percentage_errors,
    }.items():
        replace(module, name, _with_equal_chunks(_make_metric(getattr(module, name), scores)))


def _make_metric(
    original: Callable[..., Any], scores: Callable[[Any, Any], Any]
) -> Callable[..., Any]:
    """Return a metric with the signature of dask-ml from one that returns a score per output."""

    @functools.wraps(original)
    def metric(
        y_true: Any,
        y_pred: Any,
        sample_weight: Any = None,
        multioutput: str | None = "uniform_average",
        compute: bool = True,
    ) -> Any:
        if sample_weight is not None:
            raise ValueError("'sample_weight' is not supported.")
        if not is_one_of(multioutput, (None, "uniform_average", "raw_values")):
            raise ValueError("'multioutput' must be 'uniform_average' or 'raw_values'")
        result = scores(y_true, y_pred)
        result = result if multioutput == "raw_values" else result.mean()
        return result.compute() if compute else result

    return metric


def _r2_scores(y_true: Any, y_pred: Any) -> Any:
    import dask.array as da

    residual = ((y_true - y_pred) ** 2).sum(axis=0, dtype="f8")
    total = ((y_true - y_true.mean(axis=0)) ** 2).sum(axis=0, dtype="f8")
    # As in scikit-learn: 1 for a perfect prediction of a constant, 0 for any other one.
    of_constant = da.where(residual == 0, 1.0, 0.0)
    safe_total = da.where(total == 0, 1.0, total)
    return da.where(total == 0, of_constant, 1 - residual / safe_total)


def _percentage_errors(y_true: Any, y_pred: Any) -> Any:
    import dask.array as da
    import numpy as np

    least = np.finfo(np.float64).eps
    return (abs(y_pred - y_true) / da.maximum(abs(y_true), least)).mean(axis=0)


def _with_equal_chunks(metric: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(metric)
    def wrapper(y_true: Any, y_pred: Any, *arguments: Any, **named: Any) -> Any:
        return metric(*_equal_chunks(y_true, y_pred), *arguments, **named)

    return wrapper


def _equal_chunks(left: Any, right: Any) -> tuple[Any, Any]:
    """Give an array of unknown chunk sizes those of another one with as many chunks."""
    import math

    import dask.array as da

    if not (isinstance(left, da.Array) and isinstance(right, da.Array)):
        return left, right
    unknown = [math.isnan(each.shape[0]) for each in (left, right)]
    if left.numblocks[:1] == right.numblocks[:1] and unknown[0] != unknown[1]:
        rows = (right if unknown[0] else left).chunks[0]
        left, right = (
            da.Array(each.dask, each.name, (rows, *each.chunks[1:]), meta=each._meta)
            for each in (left, right)
        )
    return left, right


def correct_classification_metrics(module: Any) -> None:
    """Compute ``log_loss`` without ``eps``; compare predictions of unknown chunk sizes.

    Faults: scikit-learn 1.5 removed ``eps`` from its ``log_loss``, to which dask-ml passes it; and
    since Dask 2025.2 ``accuracy_score`` cannot compare arrays of shapes ``(nan,)`` and ``(n,)``.
    Remove it when dask-ml's ``log_loss`` has no ``eps`` and the check of ``accuracy_score`` passes.
    """
    replace(module, "accuracy_score", _with_equal_chunks(module.accuracy_score))
    module._log_loss_inner = _log_loss_of_block
    original = module.log_loss

    @functools.wraps(original)
    def log_loss(
        y_true: Any,
        y_pred: Any,
        eps: float | None = None,
        normalize: bool = True,
        sample_weight: Any = None,
        labels: Any = None,
        compute: bool = False,
    ) -> Any:
        import sklearn.metrics
        from dask.base import is_dask_collection

        if eps is not None:
            warn_caller("scikit-learn's log_loss has no eps any more; it has no effect")
        options = {"normalize": normalize, "sample_weight": sample_weight, "labels": labels}
        if is_dask_collection(y_true) and is_dask_collection(y_pred):
            loss = original(y_true, y_pred, **options)
            return loss.compute() if compute else loss
        return sklearn.metrics.log_loss(y_true, y_pred, **options)

    replace(module, "log_loss", log_loss)


def _log_loss_of_block(
    y_true: Any, y_pred: Any, sample_weight: Any, normalize: bool, labels: Any, eps: float = 0.0
) -> Any:
    import numpy as np
    import sklearn.metrics

    del eps
    weight = None if sample_weight is None else sample_weight.ravel()
    value = sklearn.metrics.log_loss(
        y_true, y_pred, normalize=normalize, sample_weight=weight, labels=labels
    )
    return np.array([value])


def correct_scorers(module: Any) -> None:
    """Compute the scorer ``neg_log_loss`` from probabilities.

    Fault: scikit-learn 1.4 replaced ``needs_proba`` of ``make_scorer`` by ``response_method``, and
    ``log_loss`` of dask-ml has no argument ``compute``. Remove it when dask-ml's
    ``get_scorer("neg_log_loss")`` returns numbers.
    """
    for name, (metric, options) in module.SCORERS.items():
        module.SCORERS[name] = (getattr(module, metric.__name__), options)
    metric, options = module.SCORERS["neg_log_loss"]
    options.pop("needs_proba", None)
    options["response_method"] = "predict_proba"
