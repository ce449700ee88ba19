"""Calls that are refused before anything is written, also without Ray and Spark."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
import pytest

from hyperplane.core.optional import is_installed
from hyperplane.dataframe import from_ray_data, from_spark, to_ray_data, to_spark
from hyperplane.errors import EngineError, MissingPackage, RequestError
from hyperplane.exchange import ray_data
from hyperplane.exchange.exchange_folder import save_rows

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


#: Types that files of Parquet do not have.
UNSTORABLE = [
    pa.month_day_nano_interval(),
    pa.struct([]),
    pa.list_(pa.struct([("empty", pa.struct([]))])),
    pa.run_end_encoded(pa.int32(), pa.int64()),
]
#: Types of files that ``dataframe.read`` refuses, or that are not read as they were.
UNREADABLE = [
    pa.uuid(),
    pa.list_(pa.uuid()),
    pa.decimal256(50, 2),
    pa.map_(pa.string(), pa.decimal256(50, 2)),
    pa.timestamp("us", "+05:30"),
    pa.list_(pa.timestamp("us", "+05:30")),
    pa.dictionary(pa.int8(), pa.timestamp("us", "Nowhere")),
]


@pytest.mark.parametrize("kind", [*UNSTORABLE, *UNREADABLE], ids=str)
def test_types_of_ray_that_cannot_be_read_back_are_named_before_anything_runs(
    kind: pa.DataType,
) -> None:
    fine = [pa.decimal256(38, 2), pa.timestamp("us", "+05:00"), pa.list_(pa.time32("s"))]
    names = [f"fine_{number}" for number in range(len(fine))]
    schema = pa.schema(zip([*names, "odd"], [*fine, kind], strict=True))
    faults = ray_data._find_type_faults(schema)
    assert [fault.asked for fault in faults] == [f"the column 'odd' of type {kind}"]


@pytest.mark.parametrize("convert", [to_ray_data, to_spark])
def test_types_that_parquet_does_not_have_are_named_before_anything_runs(convert: Any) -> None:
    # pandas cannot make a column of the last one.
    kinds = {f"odd_{number}": kind for number, kind in enumerate(UNSTORABLE[:-1])}
    kinds["fine"] = pa.list_(pa.struct([("x", pa.decimal128(5, 1))]))
    meta = pd.DataFrame(
        {name: pd.Series(dtype=pd.ArrowDtype(kind)) for name, kind in kinds.items()}
    )

    def fail(number: int) -> pd.DataFrame:
        raise AssertionError("a task ran")

    with pytest.raises(RequestError) as caught:
        convert(dd.from_map(fail, [0], meta=meta))
    assert [fault.asked.split("'")[1] for fault in caught.value.faults] == list(kinds)[:-1]


def test_types_of_partitions_without_rows_do_not_matter(tmp_path: Path) -> None:
    frames = [pd.DataFrame({"x": pd.Series(dtype="int64")}), pd.DataFrame({"x": [1.5, None]})]
    df = dd.from_map(lambda part: frames[part], [0, 1], meta=frames[0], enforce_metadata=False)
    files = save_rows(df, str(tmp_path))
    assert len(files) == 2
    assert ray_data._find_partition_faults(files) == []


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
