"""Fitted models of each framework with one interface."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pandas as pd

from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.optional import need
from hyperplane.ml.prediction.model_formats import FRAMEWORKS
from hyperplane.ml.prediction.network_predictors import decode_keras, decode_torch
from hyperplane.ml.prediction.saved_models import decode_saved_model
from hyperplane.storage.object_encoding import decode_object


class Predictor(Protocol):
    """A fitted model.

    Attributes
    ----------
    columns : list of str or None
        Names of the columns that the model was fitted with; None if it was fitted without names.
    """

    columns: list[str] | None

    def predict(self, rows: Any) -> np.ndarray:
        """Return one prediction for each row of a dataframe, an array or a list of texts."""
        ...

    def empty(self) -> np.ndarray | None:
        """Return the predictions of no rows, with their type; None if it is unknown."""
        ...


class SklearnPredictor:
    """An estimator with the interface of scikit-learn."""

    def __init__(self, model: Any) -> None:
        self.model = model
        names = getattr(model, "feature_names_in_", None)
        self.columns: list[str] | None = None if names is None else [str(name) for name in names]

    def predict(self, rows: Any) -> np.ndarray:
        """See :class:`Predictor`."""
        return np.asarray(self.model.predict(rows))

    def empty(self) -> np.ndarray | None:
        """See :class:`Predictor`."""
        classes = getattr(self.model, "classes_", None)
        return classes[:0] if isinstance(classes, np.ndarray) else None


class BoosterPredictor:
    """A model of XGBoost; for a classifier of two classes it predicts a probability."""

    def __init__(self, booster: Any) -> None:
        self.booster = booster
        names = booster.feature_names
        self.columns: list[str] | None = None if names is None else list(names)

    def predict(self, rows: Any) -> np.ndarray:
        """See :class:`Predictor`."""
        xgboost = need("xgboost", "boosting")
        if isinstance(rows, pd.DataFrame):
            # A column of a CSV file with one bad value consists of texts.
            rows = rows.apply(lambda column: pd.to_numeric(column) if _is_text(column) else column)
        return np.asarray(self.booster.predict(xgboost.DMatrix(rows)))

    def empty(self) -> np.ndarray | None:
        """See :class:`Predictor`."""
        return None


def _is_text(column: pd.Series[Any]) -> bool:
    return pd.api.types.is_string_dtype(column.dtype)


def decode_model(data: bytes, suffix: str, *, trusted: bool) -> Predictor:
    """Return the model in the bytes of a file.

    Raises
    ------
    RequestError
        If it is a model of skops or Keras that can run code and ``trusted`` is false, a model of
        Keras with custom classes, or an estimator that is not fitted.
    ValueError
        If the content is not a model.
    """
    if FRAMEWORKS[suffix] == "xgboost":
        booster = need("xgboost", "boosting").Booster()
        booster.load_model(bytearray(data))
        return BoosterPredictor(booster)
    if suffix == ".keras":
        return decode_keras(data, trusted=trusted)
    if suffix == ".savedmodel":
        return decode_saved_model(data)
    if suffix == ".pt2":
        return decode_torch(data)
    format_name = "skops" if suffix == ".skops" else "joblib"
    model = decode_object(data, "model", format_name, trusted=trusted)
    if not callable(getattr(model, "predict", None)):
        raise ValueError(f"an object of type {type(model).__name__} has no method predict")
    if _is_unfitted(model):
        given = f"a {type(model).__name__} that is not fitted"
        raise RequestError([Fault("model", given, "a fitted model", "call fit, and save it again")])
    return SklearnPredictor(model)


def _is_unfitted(model: Any) -> bool:
    """Return whether a model is an estimator of scikit-learn that predicts only after a fit."""
    base = sys.modules.get("sklearn.base")  # an estimator has imported it
    if base is None or not isinstance(model, base.BaseEstimator):
        return False
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(model)
    except Exception:  # noqa: BLE001 - estimators may have their own method for this check
        # Wrappers of fitted estimators, and those with other attributes for their state, predict.
        try:
            model.predict(np.empty((0, 1)))
        except NotFittedError:
            return True
        except Exception:  # noqa: BLE001 - no rows are an error of most estimators
            return False
    return False


def encode_predictions(predictions: np.ndarray) -> list[Any]:
    """Return predictions as numbers, texts or lists of these, for JSON.

    Raises
    ------
    ValueError
        If JSON has no such values, such as bytes or dates.

    Examples
    --------
    >>> encode_predictions(np.array([[0.5, float("nan")]]))
    [[0.5, None]]
    """
    values: list[Any] = predictions.tolist()
    kind = predictions.dtype.kind
    if kind == "O" or (kind == "f" and not np.isfinite(predictions).all()):
        return [_replace_not_finite(value) for value in values]
    if kind not in "biufU":
        raise ValueError(f"the model predicts values of type {predictions.dtype}, which JSON lacks")
    return values


def _replace_not_finite(value: Any) -> Any:
    """Return a value with None in place of numbers that JSON does not have."""
    if isinstance(value, list):
        return [_replace_not_finite(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if value is not None and not isinstance(value, str | int | float):
        raise ValueError(f"the model predicts a {type(value).__name__}, which JSON lacks")
    return None if isinstance(value, float) and not np.isfinite(value) else value


def order_columns(
    found: Sequence[str], columns: Sequence[str] | None, predictor: Predictor
) -> tuple[list[str], list[str]]:
    """Return the columns to pass to a model, and those of them that are missing."""
    wanted = list(columns or predictor.columns or found)
    present = set(found)
    return wanted, [name for name in wanted if name not in present]
