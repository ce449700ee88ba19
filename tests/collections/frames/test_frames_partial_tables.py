"""Partial tables: which groups are completed early, and which are exchanged."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pandas_results
import polars as pl
import pytest
from dask.sizeof import sizeof
from frame_strategies import QUICK, open_files, times
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import scaled

from hyperplane.collections.frames.aggregates import parse_agg
from hyperplane.collections.frames.group_tasks import aggregate_partition, find_overlapping_ranges
from hyperplane.collections.frames.grouping import Grouping
from hyperplane.collections.frames.kernels import polars_kernel as kernel
from hyperplane.collections.frames.source_collection import select_source
from hyperplane.collections.frames.time_bins import parse_windows
from hyperplane.dataframe import group_agg, window_agg

EVERY = ["15min", "1h", "1D", "W"]


@pytest.fixture(scope="module")
def files():
    with open_files() as opened:
        yield opened


@settings(QUICK, max_examples=scaled(7, 60))
@given(data=st.data(), every=st.sampled_from(EVERY), closed=st.sampled_from(["left", "right"]))
def test_distinct_values_of_sorted_files(data, every, closed, files):
    """Row groups sorted by time share only the windows at their ends."""
    rows = data.draw(st.integers(1, 40), "rows")
    drawn = data.draw(times(rows, every), "times").sort_values(ignore_index=True)
    users = data.draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows), "users")
    frame = pd.DataFrame({"time": drawn, "user": users})
    df = files.parquet(frame, [], data.draw(st.integers(1, 9), "row group"))
    held = df.compute()
    want = pandas_results.window_agg(
        held, "time", every, {"user": ["nunique", "median"]}, closed=closed
    )
    if want is None or (held.time.dt.tz is not None and held.time.min().year < 1910):
        return
    windows = window_agg(
        df, "time", every, {"user": ["nunique", "median"]}, closed=closed
    ).compute()
    pandas_results.same_frame(windows, want)


def grouping(df, every):
    like = df._meta[["time", "user"]]
    windows = parse_windows(like, "time", every, "right", "right")
    return Grouping(like, (), windows, parse_agg(like, {"user": "nunique"}, order="time"))


def log(files, order):
    stamps = pd.date_range("2024-01-01 00:10", periods=400, freq="20min")[order]
    return files.parquet(pd.DataFrame({"time": stamps, "user": np.arange(400)}), [], 100)


def partial_tables(df, how):
    read = select_source(df, ["time", "user"])
    time_ranges = find_overlapping_ranges(read.scannable_partitions, how.windows)
    return time_ranges, [
        aggregate_partition(partition, number, read.where, how, ranges)
        for number, (partition, ranges) in enumerate(zip(read.partitions, time_ranges, strict=True))
    ]


def test_only_windows_shared_by_partitions_keep_their_values(files):
    df = log(files, np.arange(400))
    how = grouping(df, "1h")
    _, tables = partial_tables(df, how)
    (state,) = how.aggregation.states
    kept = [table.filter(pl.col(state.name).list.len() > 0).height for table in tables]
    assert kept == [2, 3, 2, 0]  # of 34 windows each: those that overlap another partition


def test_all_windows_keep_their_values_in_unsorted_files(files):
    df = log(files, np.random.default_rng(1).permutation(400))
    how = grouping(df, "1h")
    (state,) = how.aggregation.states
    for table in partial_tables(df, how)[1]:
        assert (table.get_column(state.name).list.len() > 0).mean() > 0.9


def test_one_partition_without_statistics_makes_all_time_ranges_unknown(files):
    df = log(files, np.arange(400))
    read = select_source(df, ["time", "user"])
    assert [
        len(ranges)
        for ranges in find_overlapping_ranges(read.scannable_partitions, grouping(df, "1h").windows)
    ] == [
        1,
        2,
        2,
        1,
    ]

    class Unknown:
        def bounds(self, column):
            return None

    assert (
        find_overlapping_ranges([*read.scannable_partitions, Unknown()], grouping(df, "1h").windows)
        == [None] * 5
    )


def test_equal_keys_are_in_the_same_piece():
    rng = np.random.default_rng(3)
    words = [["x", "ä", None][n] for n in rng.integers(0, 3, 500)]
    keys = pl.DataFrame({"a": rng.integers(0, 9, 500), "b": words})
    for names in (["a"], ["a", "b"]):
        whole = kernel.split_by_hash(keys, names, 4)
        assert sum(piece.height for piece in whole) == 500
        halves = [
            kernel.split_by_hash(keys[:250], names, 4),
            kernel.split_by_hash(keys[250:], names, 4),
        ]
        for number, piece in enumerate(whole):
            both = pl.concat([half[number] for half in halves])
            assert both.sort("a", "b").equals(piece.sort("a", "b"))
        seen = [set(piece.select(names).rows()) for piece in whole]
        assert sum(map(len, seen)) == len(set.union(*seen))


def test_an_empty_table_is_split_into_empty_tables():
    table = pl.DataFrame({"a": [1]}).clear()
    assert [piece.height for piece in kernel.split_by_hash(table, ["a"], 3)] == [0, 0, 0]


def test_dask_measures_the_memory_of_a_table():
    assert sizeof(pl.DataFrame({"n": np.zeros(10**6)})) == 8 * 10**6
    # Each text has a view of 16 bytes, which has the text itself if that is short.
    assert sizeof(pl.DataFrame({"t": ["short"] * 1000, "n": [1] * 1000})) == 24_000
    assert sizeof(pl.DataFrame({"t": ["a long text" * 10] * 1000})) >= 16_000 + 110_000
    assert sizeof(pl.DataFrame({"s": [[1, 2, 3]] * 1000})) > 24_000


def test_a_partial_table_has_a_row_for_each_group_and_not_for_each_row(files):
    frame = pd.DataFrame({"k": np.arange(5000) % 7, "v": np.arange(5000.0)})
    df = files.parquet(frame, [], 5000)
    like = df._meta
    how = Grouping(like, ("k",), None, parse_agg(like, {"v": ["var", "sum", "first"]}))
    (piece,) = select_source(df, ["k", "v"]).partitions
    assert aggregate_partition(piece, 0, None, how, None).height == 7


def test_large_partial_tables_are_merged_as_small_ones(files, monkeypatch):
    """They are merged by the streaming engine, unless states depend on the order of rows."""
    rng = np.random.default_rng(5)
    numbers = ["sum", "count", "mean", "std", "min", "max", "nunique", "median"]
    frame = pd.DataFrame(
        {
            "key": rng.integers(0, 300, 2000).astype(str),
            "number": rng.integers(0, 50, 2000),
            "ordered": np.where(rng.random(2000) < 0.1, np.nan, np.arange(2000.0)),
            "text": rng.integers(0, 9, 2000).astype(str),
        }
    )
    for functions in (
        {"number": numbers, "text": ["min", "max", "nunique", "count"]},
        {"ordered": ["first", "last", "sum"], "text": ["first", "last", "size"]},
    ):
        df = files.parquet(frame, [], 70)
        want = frame.groupby("key").agg(functions)
        for limit in (0, 10**9):
            monkeypatch.setattr(kernel, "_MIN_STREAMED_ROWS", limit)
            for split_out in (1, 3):
                got = group_agg(df, "key", functions, split_out=split_out)
                got = got.compute(scheduler="sync").sort_index()
                pd.testing.assert_frame_equal(got, want, check_dtype=False, check_index_type=False)


@settings(QUICK, max_examples=scaled(6, 40))
@given(
    values=st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=40),
    shift=st.sampled_from([0, 10**9, -(10**12)]),
    cuts=st.integers(1, 12),
)
def test_merged_variance_equals_that_of_all_rows(values, shift, cuts, files):
    frame = pd.DataFrame({"k": 1, "v": np.array(values, dtype="float64") + shift})
    df = files.parquet(frame, [len(frame) * n // cuts for n in range(1, cuts)], 50)
    groups = group_agg(df, "k", {"v": ["var", "mean"]}).compute()
    exact = np.var(np.array(values, dtype="float64"), ddof=1) if len(values) > 1 else np.nan
    np.testing.assert_allclose(groups.iloc[0, 0], exact, rtol=1e-6, atol=1e-3)
    np.testing.assert_allclose(groups.iloc[0, 1], np.mean(values) + shift, rtol=1e-12)
