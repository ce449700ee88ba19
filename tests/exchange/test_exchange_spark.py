"""Rows of dataframes of Dask and of Spark: types, values, and where they are processed."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from services import temporary_directory
from spark_properties import PROPERTIES

import hyperplane
from hyperplane.dataframe import from_spark, to_spark
from hyperplane.errors import EngineError, RequestError
from hyperplane.exchange import spark_frames

pyspark_sql = pytest.importorskip("pyspark.sql")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.cluster,
    # pyspark 3.5 compares versions of packages with distutils.
    pytest.mark.filterwarnings("ignore:distutils Version classes:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A session on a cluster with one executor."""
    plan = hyperplane.plan_cluster(
        num_workers=1, nprocs=1, nthreads=1, cores_per_worker=1, ram_gb_per_proc=1,
        local_fit="exact", engine="spark:local", timeout=280,
        engine_options={"dashboard": False, "properties": PROPERTIES},
    )  # fmt: skip
    with temporary_directory():
        client, started = hyperplane.start(plan)
        try:
            yield client.spark
        finally:
            client.close()
            started.close()


def make_frame() -> pd.DataFrame:
    """Return a frame with a column of each kind of type, and missing values."""
    texts = np.array(["1500-01-01", "2021-02-03T04:05:06.789012", "NaT"])
    times = pd.DatetimeIndex(texts.astype("datetime64[us]"))
    instants = times.tz_localize("UTC")
    arrow = {
        "decimal": (pa.decimal128(10, 2), [Decimal("1.10"), Decimal("-2.25"), None]),
        "list": (pa.list_(pa.int64()), [[1, 2], [], None]),
        "struct": (pa.struct([("a", pa.int64())]), [{"a": 1}, {"a": None}, None]),
        "binary": (pa.binary(), [b"x", b"\0", None]),
        "date": (pa.date32(), [datetime.date(2020, 1, 1), datetime.date(1066, 10, 14), None]),
    }
    return pd.DataFrame(
        {
            "integer": [1, -2, 2**62],
            "nullable": pd.array([1, 2**60 + 1, None], dtype="Int64"),
            "unsigned": np.array([1, 2, 2**64 - 1], dtype="uint64"),
            "float": [1.5, np.nan, np.inf],
            "small": np.array([1, 2, 3], dtype="float32"),
            "boolean": pd.array([True, False, None], dtype="boolean"),
            "text": ["a", None, "ü\0"],
            "category": pd.Categorical(["x", "y", None], categories=["y", "x", "unused"]),
            "time": times,
            "instant": instants,
            "nanosecond_type": np.array(
                ["2020-01-01", "NaT", "2020-01-01T00:00:00.000001"], "datetime64[ns]"
            ),
            **{
                name: pd.array(values, dtype=pd.ArrowDtype(kind))
                for name, (kind, values) in arrow.items()
            },
        }
    )


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT or NA."""
    return pd.api.types.is_scalar(value) and bool(pd.isna(value))


def test_values_of_all_types_are_equal_and_only_workers_process_rows(spark: Any) -> None:
    def mark(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(dask_pid=os.getpid())

    def find_pid(values: pd.Series) -> pd.Series:
        return pd.Series([os.getpid()] * len(values))

    from pyspark.sql.functions import pandas_udf

    frame = make_frame()
    client, dask_cluster = hyperplane.initialize_cluster(
        nprocs=1, nthreads=1, ram_gb_per_proc=0.6, cores_per_worker=1, num_workers=1
    )
    with dask_cluster, client:
        df = dd.from_pandas(frame, npartitions=2)
        rows = to_spark(df.map_partitions(mark, meta=mark(df._meta)))
        kinds = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
        assert kinds["instant"] == "timestamp"
        assert kinds["time"] == "timestamp_ntz"
        assert kinds["decimal"] == "decimal(10,2)"
        assert kinds["date"] == "date"
        marked = rows.withColumn("spark_pid", pandas_udf(find_pid, "long")("integer"))
        before = spark.conf.get("spark.sql.parquet.outputTimestampType")
        returned = from_spark(marked)
        assert spark.conf.get("spark.sql.parquet.outputTimestampType") == before
        workers = set(client.run(os.getpid).values())
        result = returned.compute().sort_values("integer", ignore_index=True)
    assert set(result["dask_pid"]) == workers
    assert not {os.getpid(), *workers} & set(result["spark_pid"])
    # dataframe.read reads dates as times, as it does for every Parquet file.
    wanted = frame.assign(date=frame["date"].astype("datetime64[s]"))
    wanted = wanted.sort_values("integer", ignore_index=True)
    for name in frame:
        for value, original in zip(result[name].tolist(), wanted[name].tolist(), strict=True):
            assert is_missing(value) == is_missing(original), name
            assert is_missing(value) or value == original, name


def test_types_and_values_that_spark_does_not_have_are_named(spark: Any, tmp_path: Path) -> None:
    times = pd.to_datetime(["2020-01-01"])
    frame = pd.DataFrame(
        {
            "fine": [1],
            "zoned": times.tz_localize("Europe/Rome"),
            "duration": pd.to_timedelta([1], unit="s"),
            "Name": ["a"],
            "name": ["b"],
        }
    )
    with pytest.raises(RequestError) as caught:
        to_spark(dd.from_pandas(frame, npartitions=1), tmp_path / "out")
    text = str(caught.value)
    assert [fault.where for fault in caught.value.faults] == ["df"] * 3
    assert all(name in text for name in ("'zoned'", 'tz_convert("UTC")', "'duration'", "'Name'"))
    assert "'fine'" not in text
    assert not (tmp_path / "out").exists()
    exact = pd.DataFrame({"exact": np.array([1], "datetime64[ns]")})
    with pytest.raises(RequestError, match=r"'exact'.*nanoseconds.*floor"):
        to_spark(dd.from_pandas(exact, npartitions=1))
    # A missing value makes numbers of some partitions floats.
    parts = dd.from_pandas(pd.DataFrame({"fine": [1, 2], "x": [1, 2]}), npartitions=2)
    parts = parts.map_partitions(
        lambda part: part if part["x"].iloc[0] == 1 else part.astype({"x": "float64"}),
        meta=parts._meta,
    )
    with pytest.raises(RequestError, match="'x' of type int64 and double in partitions"):
        to_spark(parts, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())
    rows = spark.sql("select 1 as fine, null as nothing, interval '1' day as day, 2 as FINE")
    with pytest.raises(RequestError) as caught:
        from_spark(rows)
    assert all(name in str(caught.value) for name in ("'nothing'", "'day'", "'FINE'"))


def test_types_of_spark_that_parquet_does_not_have_are_named() -> None:
    from pyspark.sql import types

    empty = types.StructType([])
    refused = {
        "void": types.NullType(),
        "interval": types.DayTimeIntervalType(),
        "empty": empty,
        "in_list": types.ArrayType(types.StructType([types.StructField("x", empty)])),
        "in_map": types.MapType(types.StringType(), types.YearMonthIntervalType()),
    }
    fine = types.ArrayType(types.StructType([types.StructField("x", types.DateType())]))
    fields = [types.StructField(name, kind) for name, kind in [*refused.items(), ("fine", fine)]]
    faults = spark_frames._find_spark_faults(types.StructType(fields))
    assert [fault.asked.split("'")[1] for fault in faults] == list(refused)


def test_vectors_are_refused_and_no_rows_keep_their_columns(spark: Any, tmp_path: Path) -> None:
    from pyspark.ml.linalg import Vectors

    rows = spark.createDataFrame([(1, Vectors.dense(1.0))], ["x", "vector"])
    with pytest.raises(RequestError, match=r"'vector' of type vector.*vector_to_array"):
        from_spark(rows)
    empty = from_spark(rows.select("x").where("x > 1"), tmp_path / "back")
    assert list(empty.columns) == ["x"]
    assert len(empty) == 0
    # The files of a folder that the user chose remain.
    assert list((tmp_path / "back").glob("*/rows/*.parquet"))


def test_any_folder_and_thread_can_be_used_but_no_session_that_has_ended(
    spark: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "my ä, [1] #2 50%20=x"
    df = dd.from_pandas(pd.DataFrame({"x": [1, 2, 3], "a b.c": ["u", "v", "w"]}), npartitions=2)
    with ThreadPoolExecutor(1) as pool:
        rows = pool.submit(to_spark, df[df["x"] > 1], folder).result()
    assert sorted(map(tuple, rows.collect())) == [(2, "v"), (3, "w")]
    returned = from_spark(rows, folder).compute().sort_values("x")
    assert list(returned.columns) == ["x", "a b.c"]  # the name of the folder is no column
    assert returned["a b.c"].tolist() == ["v", "w"]
    assert len(list(folder.iterdir())) == 2
    spark.stop()
    with pytest.raises(EngineError, match="the session of the dataframe has ended"):
        from_spark(rows)
