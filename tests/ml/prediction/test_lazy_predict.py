"""``predict``: lazy predictions of Dask dataframes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from prediction_cases import Flights
from sklearn.linear_model import LinearRegression, LogisticRegression
from xgboost import XGBRegressor

import hyperplane
from hyperplane.errors import RequestError
from hyperplane.ml import predict
from hyperplane.ml.prediction import lazy


@pytest.fixture(autouse=True)
def _threads() -> Any:
    with dask.config.set(scheduler="threads"):
        yield


def test_predictions_have_the_index_and_type_of_a_plain_prediction(flights: Flights) -> None:
    frame = flights.frames[0].dropna().set_index(np.arange(100, 139))
    found = predict(flights.url, dd.from_pandas(frame, npartitions=4))
    assert (found.dtype, found.npartitions) == (np.dtype("float64"), 4)
    expected = pd.Series(
        flights.model.predict(frame[["a", "b"]]), index=frame.index, name="prediction"
    )
    pd.testing.assert_series_equal(found.compute(), expected)


def test_empty_partitions_and_texts(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [0.0, 1.0, 2.0, 3.0], "keep": [True, True, False, False]})
    model = LogisticRegression().fit(frame[["a"]], ["late", "late", "on time", "on time"])
    hyperplane.save(model, tmp_path / "model.skops")
    df = dd.from_pandas(frame, npartitions=2)
    found = predict(tmp_path / "model.skops", df[df.keep])
    assert found.compute().to_list() == ["late", "late"]
    assert found.compute().dtype == found.dtype


def test_several_outputs_are_columns(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [0.0, 1.0, 2.0]})
    model = LinearRegression().fit(frame, np.c_[frame.a, 2 * frame.a])
    hyperplane.save(model, tmp_path / "model.skops")
    found = predict(tmp_path / "model.skops", dd.from_pandas(frame, npartitions=2))
    assert list(found.columns) == ["prediction_0", "prediction_1"]
    np.testing.assert_allclose(found.compute(), model.predict(frame), atol=1e-12)


def test_xgboost(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": np.arange(50.0), "b": 1.0})
    model = XGBRegressor(n_estimators=3).fit(frame, frame.a)
    model.save_model(tmp_path / "model.ubj")
    found = predict(tmp_path, dd.from_pandas(frame[["b", "a"]], npartitions=3))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found.compute(), model.predict(frame))


def test_nothing_is_computed_before_compute(
    flights: Flights, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise AssertionError("computed")

    monkeypatch.setattr(lazy, "_predict_block", fail)
    found = predict(flights.url, dd.from_pandas(flights.frames[0], npartitions=2))
    with pytest.raises(AssertionError, match="computed"):
        found.compute()


def test_a_refused_row_is_an_error_of_the_model(flights: Flights) -> None:
    found = predict(flights.url, dd.from_pandas(flights.frames[0], npartitions=2))
    with pytest.raises(ValueError, match="NaN"):
        found.compute()


def test_faults(flights: Flights) -> None:
    df = dd.from_pandas(flights.frames[0], npartitions=2)
    with pytest.raises(RequestError, match="lacks the columns 'a' of the model"):
        predict(flights.url, df[["b"]])
    with pytest.raises(RequestError, match=r"ParallelPostFit"):
        predict(flights.model, df)
    with pytest.raises(RequestError, match=r"(?s)columns = 3.*from_pandas.*model = "):
        predict("none", flights.frames[0], columns=3)  # type: ignore[arg-type]
