"""Conversion from pandas to Polars and back keeps types."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from frame_strategies import KINDS, QUICK, series
from frame_strategies import column as columns
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import scaled

from hyperplane.errors import DataError
from hyperplane.formats.pandas_frames.from_pandas import from_pandas
from hyperplane.formats.pandas_frames.to_pandas import column_to_pandas, to_pandas


@settings(QUICK, max_examples=scaled(12, 150))
@given(data=st.data(), kind=st.sampled_from(sorted(KINDS)))
def test_a_column_is_restored_unchanged(data, kind):
    frame = pd.DataFrame({"v": data.draw(columns(kind, data.draw(st.integers(0, 9))))})
    back = to_pandas(from_pandas(frame), frame)
    if frame.v.dtype == np.dtype(object):
        frame["v"] = frame.v.where(frame.v.notna(), np.nan)
    pd.testing.assert_frame_equal(back, frame)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kathmandu", "+02:00", "-03:30"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_instants_and_zones_are_restored(zone, unit):
    times = pd.to_datetime(["2024-03-31 00:59:59", None, "1901-01-01"], format="ISO8601")
    frame = pd.DataFrame({"t": times.as_unit(unit).tz_localize("UTC").tz_convert(zone)})
    back = to_pandas(from_pandas(frame), frame)
    pd.testing.assert_frame_equal(back, frame)


def test_missing_values_become_null():
    frame = pd.DataFrame(
        {
            "a": [1.0, np.nan],
            "b": pd.to_datetime([None, "2024-01-01"]),
            "c": pd.Series([None, np.nan], dtype=object),
            "d": pd.array([np.nan, 1.0], dtype=pd.ArrowDtype(pa.float64())),
        }
    )
    assert from_pandas(frame).null_count().row(0) == (1, 1, 2, 1)


def test_the_index_is_dropped():
    frame = pd.DataFrame({"a": [1, 2]}, index=pd.Index([5, 5], name="a"))
    assert from_pandas(frame).columns == ["a"]


def test_categories_are_compared_by_value():
    one = pd.DataFrame({"c": series(["b", "a"], pd.CategoricalDtype(["b", "a"]))})
    other = pd.DataFrame({"c": series(["a", "b"], pd.CategoricalDtype(["a", "b"]))})
    both = pl.concat([from_pandas(one), from_pandas(other)])
    assert both.get_column("c").to_list() == ["b", "a", "a", "b"]


@pytest.mark.parametrize(
    "values",
    [
        [datetime.date(2024, 1, 1), None],
        [decimal.Decimal("1.50"), decimal.Decimal("2.25")],
        [b"a", b"\xff"],
        [["a"], ["b", "c"]],
        [{"x": 1}, {"x": 2}],
    ],
)
def test_objects_keep_their_type(values):
    frame = pd.DataFrame({"v": pd.Series(values, dtype=object)})
    back = to_pandas(from_pandas(frame), frame).v.to_list()
    assert [None if value is np.nan else value for value in back] == values


def test_integers_with_missing_values_become_floats_as_in_pandas():
    result = column_to_pandas(pl.Series([1, None], dtype=pl.Int64), np.dtype("int64"))
    assert result.dtype == "float64"
    result = column_to_pandas(pl.Series([2**60 + 1, None], dtype=pl.Int64), pd.Int64Dtype())
    assert result[0] == 2**60 + 1


def test_mixed_values_are_an_error_with_two_examples():
    with pytest.raises(DataError, match=r"column 'v': holds .* such as 1 and 'a'"):
        from_pandas(pd.DataFrame({"v": pd.Series([1, "a"], dtype=object)}))


PERIODS, CODED = pd.PeriodDtype("D"), pd.CategoricalDtype([(1, 2), (3, 4)])
NO_FLOATS = [np.dtype(object), np.dtype(bool), pd.StringDtype(), np.dtype("datetime64[ns]")]


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    ("dtype", "declared_dtype"),
    [
        *[(np.dtype("float64"), declared_dtype) for declared_dtype in [*NO_FLOATS, PERIODS, CODED]],
        (PERIODS, np.dtype("float64")),
        (PERIODS, pd.PeriodDtype("h")),
        (np.dtype(object), PERIODS),
    ],
)
def test_a_partition_without_values_gets_the_declared_type(dtype, declared_dtype, rows):
    missing = pd.DataFrame({"v": pd.Series([None] * rows, dtype=dtype)})
    declared = pd.DataFrame({"v": pd.Series([], dtype=declared_dtype)})
    assert from_pandas(missing, declared).get_column("v").dtype == pl.Null


@pytest.mark.parametrize(
    "declared_dtype", [np.dtype("int64"), np.dtype("float32"), pd.Int64Dtype()]
)
def test_floats_without_values_stay_floats_if_other_numbers_are_declared(declared_dtype):
    missing = pd.DataFrame({"v": [np.nan]})
    declared = pd.DataFrame({"v": pd.Series([], dtype=declared_dtype)})
    assert from_pandas(missing, declared).get_column("v").dtype == pl.Float64
