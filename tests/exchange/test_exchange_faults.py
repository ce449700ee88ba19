"""Calls that are refused before anything is written, also without Ray and Spark."""

from __future__ import annotations

import datetime
from typing import Any

import dask.dataframe as dd
import pandas as pd
import pytest

from hyperplane.core.optional import is_installed
from hyperplane.dataframe import from_ray_data, from_spark, to_ray_data, to_spark
from hyperplane.errors import EngineError, MissingPackage, RequestError

DF = dd.from_pandas(pd.DataFrame({"x": [1]}), npartitions=1)


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(RequestError, match="nothing was converted") as caught:
        to_ray_data(pd.DataFrame({"x": [1]}), 7, storage_options="no")  # type: ignore[arg-type]
    assert [fault.where for fault in caught.value.faults] == ["df", "storage_options", "folder"]


@pytest.mark.parametrize("value", [None, DF, "x", 1])
def test_only_datasets_of_ray_are_converted(value: Any) -> None:
    with pytest.raises(RequestError, match=r"dataset.*ray\.data\.Dataset"):
        from_ray_data(value)


def test_workers_on_other_machines_need_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = {"127.0.0.1", "10.0.0.7"}
    monkeypatch.setattr("hyperplane.exchange.ray_data.list_dask_hosts", lambda: hosts)
    with pytest.raises(RequestError, match=r"folder.*10\.0\.0\.7"):
        to_ray_data(DF)


def test_a_folder_with_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(RequestError, match="folder"):
        to_ray_data(DF, "nosuch://bucket/x")


def test_without_ray_or_a_cluster_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("hyperplane.exchange.ray_data.create_temporary_folder", pytest.fail)
    error = EngineError if is_installed("ray") else MissingPackage
    with pytest.raises(error, match="initialize_ray_cluster" if error is EngineError else "ray"):
        to_ray_data(DF)


def test_all_faults_of_a_conversion_to_spark_are_reported_at_once() -> None:
    with pytest.raises(RequestError, match="nothing was converted") as caught:
        to_spark(pd.DataFrame({"x": [1]}), 7)  # type: ignore[arg-type]
    assert [fault.where for fault in caught.value.faults] == ["df", "folder"]
    with pytest.raises(RequestError, match=r"folder.*that all workers and executors can use"):
        to_spark(DF, "memory://x")


@pytest.mark.parametrize("value", [None, DF, "x", 1])
def test_only_dataframes_of_spark_are_converted(value: Any) -> None:
    with pytest.raises(RequestError, match=r"df.*pyspark\.sql\.DataFrame"):
        from_spark(value)


def test_without_spark_or_a_session_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.setattr("hyperplane.exchange.spark_frames.create_temporary_folder", pytest.fail)
    error = EngineError if is_installed("pyspark") else MissingPackage
    with pytest.raises(error, match="init_spark" if error is EngineError else "spark"):
        to_spark(DF)


@pytest.mark.parametrize("convert", [to_ray_data, to_spark])
@pytest.mark.parametrize("names", [["x", "x"], ["x", 0], ["x", "__index_level_0__"]])
def test_names_that_parquet_does_not_keep_are_refused(convert: Any, names: list[Any]) -> None:
    frame = pd.DataFrame([[1, 2]], columns=names)
    with pytest.raises(RequestError, match=r"df = .*column.*rename") as caught:
        convert(dd.from_map(lambda _: frame, [0], meta=frame.iloc[:0]))
    assert [fault.where for fault in caught.value.faults] == ["df"]
    assert repr(names[1]) in str(caught.value)


def test_types_that_arrow_does_not_have_are_named_with_the_others() -> None:
    odd = datetime.timezone(datetime.timedelta(hours=5, seconds=7))
    frame = pd.DataFrame(
        {
            "complex": [1j],
            "zoned": pd.to_datetime(["2020-01-01"]).tz_localize(odd),
            "duration": pd.to_timedelta([1], unit="s"),
            "sparse": pd.arrays.SparseArray([0]),
        }
    )
    with pytest.raises(RequestError) as caught:
        to_spark(dd.from_pandas(frame, npartitions=1))
    first, second, third = (str(fault) for fault in caught.value.faults)
    assert "'complex' of type complex128" in first
    assert "'zoned'" in second
    assert 'tz_convert("UTC")' in second
    assert "'duration'" in third
