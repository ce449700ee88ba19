"""Semi and anti joins against the isin of pandas."""

from __future__ import annotations

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pandas_results
import pytest
from frame_strategies import QUICK, column, cut, open_files
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import combinations, scaled

from hyperplane.collections.frames.source_collection import select_source
from hyperplane.dataframe import group_agg, join
from hyperplane.errors import RequestError

KEYS = ["int64", "str", "float64", "float32", "Int64", "boolean", "datetime", "zoned", "category"]
#: How the sides are stored and joined.
WAYS = ["broadcast", "files, shuffled", "pandas", "one partition on the right"]


@pytest.fixture(scope="module")
def files():
    with open_files() as opened:
        yield opened


def select_rows(left, right, on, how):
    """Return the rows of pandas: of several keys as tuples with one kind of missing value.

    So are nullable keys, of which isin, unlike merge, does not find missing values.
    """
    if len(on) == 1 and not hasattr(left[on[0]].dtype, "numpy_dtype"):
        matches = left[on[0]].isin(right[on[0]]).to_numpy(dtype=bool)
    else:
        tuples = [
            [
                tuple(None if pd.isna(v) else v for v in row)
                for row in side[on].astype(object).values
            ]
            for side in (left, right)
        ]
        matches = pd.Series([key in set(tuples[1]) for key in tuples[0]], dtype=bool).to_numpy()
    return left[matches if how == "semi" else ~matches]


@st.composite
def sides(draw):
    kinds = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=2))
    result = []
    for side in ("left", "right"):
        rows = draw(st.integers(0, 14))
        columns = {f"k{n}": draw(column(kind, rows)) for n, kind in enumerate(kinds)}
        result.append(pd.DataFrame(columns).assign(**{"n": np.arange(rows), side: "x"}))
    return result[0], result[1], list(columns)


def open_sides(files, left, right, way, places):
    if way in ("broadcast", "files, shuffled"):
        return files.parquet(left, places, 4), files.parquet(right, [len(right) // 2], 3)
    cuts = [] if way == "one partition on the right" else [len(right) // 3, len(right) // 2]
    return cut(left, places), cut(right, cuts)


@pytest.mark.filterwarnings(
    "ignore:.*type mismatches"
)  # read has other types without missing values
@pytest.mark.parametrize(("way", "how"), combinations(WAYS, ["semi", "anti"]))
@settings(QUICK, max_examples=scaled(6, 60))
@given(data=st.data(), both=sides())
def test_rows_equal_isin(files, way, how, data, both):
    left, right, on = both
    places = data.draw(st.lists(st.integers(0, len(left)), max_size=3), "places")
    with pytest.MonkeyPatch.context() as patch:
        if way == "files, shuffled":
            patch.setattr("hyperplane.collections.frames.small_side.MAX_SMALL_SIDE", -1)
        one, two = open_sides(files, left, right, way, places)
        joined = join(one, two, on, how)
    assert select_source(joined, list(joined.columns)).scanned == (way == "broadcast")
    with dask.config.set(scheduler="sync"):
        ours, read_left, read_right = joined.compute(), one.compute(), two.compute()
    want = select_rows(read_left, read_right, on, how)
    assert list(ours.columns) == list(left.columns)
    assert ours.dtypes.to_list() == want.dtypes.to_list()
    if way in ("broadcast", "one partition on the right"):
        assert ours["n"].to_list() == want["n"].to_list()  # in the order of the left side
    assert pandas_results.rows_of(ours) == pandas_results.rows_of(want)
    pd.testing.assert_frame_equal(joined._meta, ours.iloc[:0], check_index_type=False)


def test_each_row_is_returned_once_with_columns_of_the_left_side(files):
    left = pd.DataFrame({"k": [1, 2, 2, 3], "v": [1.5, 2.5, 3.5, 4.5]})
    right = pd.DataFrame({"k": [2, 2, 2, 9], "v": [0, 0, 0, 0]})  # no suffixes for v
    for one, two in (
        (files.parquet(left, [2], 5), files.parquet(right, [2], 5)),
        (cut(left, [2]), cut(right, [2])),
    ):
        for how, values in (("semi", [2.5, 3.5]), ("anti", [1.5, 4.5])):
            result = join(one, two, "k", how).compute(scheduler="sync")
            assert result.columns.to_list() == ["k", "v"]
            assert sorted(result["v"]) == values


def test_missing_keys_are_equal(files):
    left = pd.DataFrame({"k": [1.0, np.nan], "v": [1, 2]})
    with_missing, without = pd.DataFrame({"k": [np.nan]}), pd.DataFrame({"k": [5.0]})
    for right, values in ((with_missing, [2]), (without, [])):
        for one, two in (
            (files.parquet(left, [], 5), files.parquet(right, [], 5)),
            (cut(left, [1]), dd.concat([cut(right, []), cut(right, [])])),
        ):
            result = join(one, two, "k", "semi").compute(scheduler="sync")
            assert result["v"].to_list() == values


def test_filters_and_groups_after_a_semi_join_equal_pandas(files):
    left = pd.DataFrame({"k": np.arange(200) % 17, "v": np.arange(200), "w": np.arange(200) % 3})
    right = pd.DataFrame({"k": np.arange(30), "city": ["a", "b", "c"] * 10})
    one, two = files.parquet(left, [50, 120], 20), files.parquet(right, [10], 10)
    some, few = right[right.city == "b"], two[two.city == "b"]
    for how in ("semi", "anti"):
        result = join(one[one.v > 20], few, "k", how)
        want = select_rows(left[left.v > 20], some, ["k"], how)
        agg = {"v": ["sum", "mean", "median"]}
        groups = group_agg(result[result.w > 0], "k", agg).compute()
        pandas_results.same_frame(groups, pandas_results.group_agg(want[want.w > 0], "k", agg))
        sums = group_agg(result, "w", {"v": "sum"}).compute()  # grouped before the join
        assert sums["v"].to_dict() == want.groupby("w")["v"].sum().to_dict()


def test_only_keys_of_the_right_side_and_row_groups_in_their_range_are_read(files):
    left = files.parquet(pd.DataFrame({"k": range(90), "v": 1}), [], 10)
    right = files.parquet(pd.DataFrame({"k": [31, 35], "unused": "u"}), [], 10)
    parts = select_source(join(left, right, "k", "semi"), ["k", "v"]).partitions
    assert [part._read_right().table.columns for part in parts] == [["k"]] * len(parts)
    read = [key for part in parts for key in part.scan_left().collect()["k"]]
    assert read == [31, 32, 33, 34, 35]
    parts = select_source(join(left, right, "k", "anti"), ["k", "v"]).partitions
    assert sum(len(part.scan_left().collect()) for part in parts) == 90


def test_the_size_of_the_keys_decides_whether_the_right_side_is_broadcast(files, monkeypatch):
    right = pd.DataFrame({"k": range(500), "text": ["a long text " * 40] * 500})
    left, two = files.parquet(pd.DataFrame({"k": [3, 700]}), [], 5), files.parquet(right, [], 500)
    monkeypatch.setattr("hyperplane.collections.frames.small_side.MAX_SMALL_SIDE", 50_000)
    for how, scanned in (("inner", False), ("semi", True)):
        result = join(left, two, "k", how)
        assert select_source(result, ["k"]).scanned == scanned
        assert result.compute()["k"].to_list() == [3]


@pytest.mark.filterwarnings("ignore:.*type mismatches")
@pytest.mark.parametrize("how", ["semi", "anti"])
def test_integers_beyond_2_53_are_not_compared_as_floats(how):
    left = pd.DataFrame({"k": np.array([2**53 + 1, 5], "int64")})
    right = pd.DataFrame({"k": np.array([2**53, 5, 2**63 + 1], "uint64")})
    for places in ([], [1]):
        result = join(cut(left, places), cut(right, places), "k", how).compute(scheduler="sync")
        assert result["k"].to_list() == ([5] if how == "semi" else [2**53 + 1])
        assert result["k"].dtype == "int64"


def test_other_words_are_refused_with_those_that_are_allowed():
    frame = cut(pd.DataFrame({"k": [1]}), [])
    with pytest.raises(RequestError, match="expected 'inner', 'left', 'semi' or 'anti'"):
        join(frame, frame, "k", "outer")
