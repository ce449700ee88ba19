"""drop_duplicates against pandas."""

from __future__ import annotations

import datetime

import dask
import numpy as np
import pandas as pd
import pandas_results
import pytest
from frame_strategies import KINDS, QUICK, cut, frames, in_partitions, open_files
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import scaled

from hyperplane.dataframe import drop_duplicates
from hyperplane.errors import RequestError

INTO = st.sampled_from([None, 1, 2, 5])
KEEP = st.sampled_from(["first", "last"])


@pytest.fixture(scope="module")
def files():
    with open_files(keep_objects=True) as opened:
        yield opened


@settings(QUICK, max_examples=scaled(6, 50))
@given(data=st.data())
def test_kept_rows_equal_pandas(data, files):
    subset = data.draw(st.sampled_from([["k0"], ["k0", "k1"]]), "subset")
    frame = data.draw(frames(keys=2), "frame")
    frame["place"] = np.arange(len(frame))
    df, keep = data.draw(in_partitions(frame, files), "df"), data.draw(KEEP, "keep")
    held = df.compute()
    want = held.drop_duplicates(subset, keep=keep)
    result = drop_duplicates(df, subset, keep=keep, split_out=data.draw(INTO, "into")).compute()
    result = result.sort_values("place", ignore_index=True)
    pandas_results.same_frame(result, want.sort_values("place", ignore_index=True))


@settings(QUICK, max_examples=scaled(6, 50))
@given(data=st.data())
def test_complete_rows_equal_pandas(data, files):
    kinds = sorted(set(KINDS) - {"float64"})  # either of 0.0 and -0.0 may be kept
    frame = data.draw(frames(kinds=kinds, values=2), "frame")
    df = data.draw(in_partitions(frame, files), "df")
    want = df.compute().drop_duplicates()
    result = drop_duplicates(df, split_out=data.draw(INTO, "into")).compute()
    assert list(result.dtypes) == list(want.dtypes)
    assert pandas_results.rows_of(result) == pandas_results.rows_of(want)


@pytest.mark.parametrize("into", [1, 3])
def test_missing_values_of_every_kind_equal_each_other(into):
    frame = pd.DataFrame(
        {
            "x": [np.nan, np.nan, 1.0, 1.0],
            "y": pd.Series([None, np.nan, "a", "a"], dtype=object),
            "z": pd.to_datetime([None, None, "2024-01-01", "2024-01-01"]),
        }
    )
    result = drop_duplicates(cut(frame, [1, 3]), split_out=into).compute(scheduler="sync")
    assert pandas_results.rows_of(result) == pandas_results.rows_of(frame.drop_duplicates())
    assert len(result) == 2


@pytest.mark.parametrize("into", [1, 3])
def test_zeros_of_both_signs_are_equal(into):
    frame = pd.DataFrame({"x": [0.0, -0.0, 1.0, -0.0]})
    result = drop_duplicates(cut(frame, [1, 3]), split_out=into).compute(scheduler="sync")
    assert sorted(result.x) == [0.0, 1.0]


@pytest.mark.parametrize("partitions", [1, 7, 40])
def test_one_duplicate_among_distinct_rows_is_dropped(partitions):
    frame = pd.DataFrame({"x": np.arange(2000) % 1999, "row": np.arange(2000)})
    df = cut(frame, [2000 * n // partitions for n in range(1, partitions)])
    for keep, kept in (("first", 0), ("last", 1999)):
        result = drop_duplicates(df, "x", keep=keep).compute(scheduler="sync")
        assert sorted(result.x) == list(range(1999))
        assert result.loc[result.x == 0, "row"].to_list() == [kept]


def test_date_objects_stay_dates():
    days = [datetime.date(2024, 1, 2), datetime.date(2024, 1, 1)] * 2
    frame = pd.DataFrame({"day": pd.Series(days, dtype=object)})
    with dask.config.set({"dataframe.convert-string": True}):
        result = drop_duplicates(cut(frame, [1])).compute(scheduler="sync")
    assert sorted(result.day) == sorted(set(days))


def test_frames_of_one_or_no_row_are_returned():
    empty = pd.DataFrame({"x": pd.Series(dtype="str")})
    assert len(drop_duplicates(cut(empty, [0, 0])).compute(scheduler="sync")) == 0
    one = pd.DataFrame({"x": ["a"]})
    assert drop_duplicates(cut(one, [0, 1])).compute(scheduler="sync").x.to_list() == ["a"]


def test_all_faults_are_reported_together():
    df = cut(pd.DataFrame({"user": [1]}), [])
    with pytest.raises(RequestError) as caught:
        drop_duplicates(df, ["usr", "page"], keep="none", split_out=0)
    asked = [fault.where for fault in caught.value.faults]
    assert asked == ["subset", "subset", "split_out", "keep"]
    assert "did you mean 'user'" in str(caught.value)
