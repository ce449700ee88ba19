"""Predict rows; those that the model refuses are returned with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from hyperplane.core.errors import MissingPackage
from hyperplane.ml.prediction.predictors import Predictor, encode_predictions, order_columns

#: Longest reason of a refused row, in characters.
_MAX_REASON = 300


@dataclass
class Rows:
    """Consecutive rows of an input.

    Parameters
    ----------
    numbers : sequence of int
        Number of each row in its input, from 0.
    values : dataframe, or list of instances
        A list has objects of JSON: mappings of names to values, lists of values, or single values.
    errors : list of (int, str)
        Rows that could not be read, with the reason; they are not in ``numbers``.
    """

    numbers: Sequence[int]
    values: Any
    errors: list[tuple[int, str]] = field(default_factory=list)


@dataclass
class Predictions:
    """Predictions of rows, and reasons for rows without one; both by the number of the row."""

    values: list[tuple[int, Any]] = field(default_factory=list)
    errors: list[tuple[int, str]] = field(default_factory=list)


def predict_rows(
    predictor: Predictor,
    rows: Rows,
    batch_size: int,
    columns: Sequence[str] | None,
    max_errors: int | None = None,
) -> Predictions:
    """Predict rows in batches; a refused batch is halved until the refused rows are found.

    The search ends after ``max_errors`` refused rows. With 0, a refused batch is not halved, and
    its error is that of its first row.
    """
    result = Predictions(errors=list(rows.errors))
    for start in range(0, len(rows.numbers), batch_size):
        stop = min(start + batch_size, len(rows.numbers))
        _predict_range(predictor, rows, start, stop, columns, result, max_errors)
    result.errors.sort()
    return result


def _predict_range(
    predictor: Predictor,
    rows: Rows,
    start: int,
    stop: int,
    columns: Sequence[str] | None,
    result: Predictions,
    max_errors: int | None,
) -> None:
    if max_errors is not None and len(result.errors) >= max(1, max_errors):
        return
    try:
        batch = _select(rows.values, start, stop, predictor, columns)
        predictions = predictor.predict(batch)
        if predictions.ndim == 0 or len(predictions) != stop - start:
            raise ValueError(f"the model returned predictions of shape {predictions.shape}")
        encoded = encode_predictions(predictions)
    except (MemoryError, MissingPackage):
        raise
    except Exception as error:  # noqa: BLE001 - a model raises any exception for a row
        if stop - start == 1 or max_errors == 0:
            result.errors.append((rows.numbers[start], describe_refusal(error)))
            return
        middle = (start + stop) // 2
        _predict_range(predictor, rows, start, middle, columns, result, max_errors)
        _predict_range(predictor, rows, middle, stop, columns, result, max_errors)
        return
    result.values += zip(rows.numbers[start:stop], encoded, strict=True)


def describe_refusal(error: BaseException) -> str:
    """Return the type and message of an error in one line."""
    # The trace of XGBoost has paths of this machine.
    text = " ".join(str(error).partition("\nStack trace:")[0].split())
    return f"{type(error).__name__}: {text}"[:_MAX_REASON]


def _select(
    values: Any, start: int, stop: int, predictor: Predictor, columns: Sequence[str] | None
) -> Any:
    """Return rows in the form that the model was fitted with: with or without names."""
    if not isinstance(values, pd.DataFrame):
        return _assemble(values[start:stop], predictor, columns)
    batch = values.iloc[start:stop]
    return batch if predictor.columns is not None else batch.to_numpy()


def _assemble(instances: Sequence[Any], predictor: Predictor, columns: Sequence[str] | None) -> Any:
    """Return instances of JSON as a dataframe, an array or a list of texts."""
    if all(isinstance(instance, dict) for instance in instances):
        names = order_columns(list(instances[0]), columns, predictor)[0]
        missing = [name for name in names if any(name not in each for each in instances)]
        if missing:
            raise ValueError(f"the instance has no {', '.join(map(repr, missing))}")
        frame = pd.DataFrame([[each[name] for name in names] for each in instances], columns=names)
        return frame if predictor.columns is not None else frame.to_numpy()
    if all(isinstance(instance, str) for instance in instances):
        return list(instances)
    if any(isinstance(instance, dict | str | None) for instance in instances):
        raise ValueError("the instance is neither an object, nor a list of values, nor a number")
    lists = [each if isinstance(each, list) else [each] for each in instances]
    if predictor.columns is None:
        return np.array(lists)
    # The constructor of a dataframe would fill shorter lists with missing values.
    wrong = {len(each) for each in lists} - {len(predictor.columns)}
    if wrong:
        raise ValueError(
            f"the instance has {min(wrong)} values; the model has {len(predictor.columns)} columns"
        )
    return pd.DataFrame(lists, columns=predictor.columns)
