"""Prediction on the cluster: one loaded model in each worker process."""

from __future__ import annotations

from typing import Any

import cloudpickle
import dask.dataframe as dd
import numpy as np
import pytest
from prediction_cases import Flights, check_outputs
from sklearn.ensemble import RandomForestRegressor

import hyperplane
from hyperplane.errors import RequestError
from hyperplane.ml import predict, predict_files

pytestmark = pytest.mark.cluster


@pytest.mark.slow
def test_worker_processes_load_the_model_once(flights: Flights, client: Any) -> None:
    out = flights.folder / "out"
    result = predict_files(flights.url, flights.write("parquet"), out)
    check_outputs(flights, out)
    assert 1 <= result.model_loads <= len(client.nthreads()) == 2
    again = predict_files(
        flights.url, flights.write("parquet"), flights.folder / "out2", batch_size=7
    )
    assert again.model_loads + result.model_loads <= 2


def test_memory_that_workers_do_not_share_is_refused(flights: Flights, client: Any) -> None:
    with pytest.raises(RequestError, match="workers share"):
        predict_files(flights.url, flights.write("csv"), "memory://predictions/out")


def test_a_dataframe_is_predicted_without_the_model_in_the_graph(
    flights: Flights, client: Any
) -> None:
    frame = flights.frames[1].dropna()
    forest = RandomForestRegressor(100, random_state=0).fit(frame[["a", "b"]], frame.a)
    hyperplane.save(forest, flights.folder / "forest.joblib")
    url = flights.folder / "forest.joblib"
    found = predict(url, dd.from_pandas(frame, npartitions=4), trusted=True)
    assert len(cloudpickle.dumps(dict(found.__dask_graph__()))) < 50_000 < url.stat().st_size
    values = client.compute(found).result()
    np.testing.assert_allclose(values, forest.predict(frame[["a", "b"]]))


def test_an_error_of_a_file_ends_the_call(flights: Flights, client: Any) -> None:
    files = flights.write("parquet")
    flights.frames[2].drop(columns="a").to_parquet(flights.folder / "part-2.parquet")
    with pytest.raises(OSError, match="lacks the columns 'a'"):
        predict_files(flights.url, files, flights.folder / "out", max_workers=1)
    assert len(list((flights.folder / "out").glob("prediction.results-*"))) == 2
