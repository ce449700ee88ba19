"""Errors of libraries in tasks name the column that they are about."""

from __future__ import annotations

import datetime as dt

import dask
import dask.dataframe as dd
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from hyperplane import dataframe
from hyperplane.collections.frames.task_errors import run_task
from hyperplane.errors import DataError, HyperplaneError
from hyperplane.formats.pandas_frames.column_names import escape

SECONDS = dt.timezone(dt.timedelta(hours=5, minutes=45, seconds=30))
TIMES = pd.date_range("2024-01-01", periods=4, tz=SECONDS)


def _raising(error):
    def task(*arguments, **named):
        raise error

    return task


def _column_of(function, *arguments):
    with pytest.raises(DataError, match="has values that cannot be processed") as caught:
        run_task(function, *arguments)
    assert "of the result" not in str(caught.value)
    return caught.value.column


def test_arrow_errors_name_the_column_or_index():
    frame = pd.DataFrame({"a": [1] * 4, "b": TIMES})
    assert _column_of(pa.Table.from_pandas, frame) == "b"
    assert _column_of(pa.Table.from_pandas, frame[["a"]].set_index(TIMES)) == "index"


def test_polars_errors_name_the_quoted_column():
    tables = [pl.DataFrame({"a": [1], "b": [2]}), pl.DataFrame({"a": [1.5], "b": [2]})]
    strict = pl.exceptions.InvalidOperationError("conversion from `i64` failed in column 'b'")
    assert _column_of(_raising(strict), tables) == "b"
    assert _column_of(pl.concat, tables) == "a"  # not quoted: the only one of several types
    assert _column_of(_raising(ValueError("no")), tables[:1], 3) == "a, b"


def test_errors_of_a_list_of_frames_name_the_unconvertible_column():
    frames = [pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [1], "z": [1 + 2j]})]
    assert _column_of(_raising(TypeError("no")), (frames, "key")) == "z"
    indexed = frames[0].set_index(pd.Index([1 + 2j], name="place"))
    assert _column_of(_raising(TypeError("no")), indexed) == "place"


def test_errors_name_the_series_and_unescape_names():
    assert _column_of(_raising(ValueError("no")), pd.Series([1], name="t")) == "t"
    assert _column_of(_raising(ValueError("no")), {"x": pl.DataFrame({escape("*"): [1]})}) == "*"


def test_errors_of_tasks_without_tables_name_no_column():
    with pytest.raises(HyperplaneError, match=r"^a task failed \(ValueError: no\)$"):
        run_task(_raising(ValueError("no")), 3)


def test_a_partition_that_is_not_a_frame_is_an_error_without_a_column():
    df = dd.from_pandas(pd.DataFrame({"k": [1, 2]}), npartitions=1)
    wrong = df.map_partitions(lambda part: 3, meta=df._meta, enforce_metadata=False)
    with (
        dask.config.set(scheduler="sync"),
        pytest.raises(HyperplaneError, match="partition 0 is a int") as caught,
    ):
        dataframe.group_agg(wrong, by="k", agg={"k": "max"}).compute()
    assert not isinstance(caught.value, DataError)
