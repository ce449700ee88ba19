"""Helpers read neighboring partitions together if the columns that they need are small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
import pytest

from hyperplane.collections.frames.source_collection import select_source
from hyperplane.dataframe import group_agg, join, read, window_counts
from hyperplane.formats.partition_sizes import merge_neighbors

FILES, ROWS, SIZE = 12, 500, 100_000
#: Estimated bytes of a small integer, which Parquet stores as one of 32 bits.
INTEGER = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of 4 kB of small columns and 40 kB of others each."""
    folder = tmp_path_factory.mktemp("wide")
    for number in range(FILES):
        rows = np.arange(number * ROWS, (number + 1) * ROWS)
        narrow = {"key": rows % 3, "other": rows.astype("int16")}
        times = pd.Timestamp("2026-01-01") + pd.to_timedelta(rows, "s")
        wide = {f"wide{n}": rows + 0.5 for n in range(10)}
        table = pd.DataFrame({**narrow, "time": times, **wide}).astype({"key": "int8"})
        table.to_parquet(folder / f"{number:02}.parquet")
    return folder


def row_counts(partitions: Any) -> list[int]:
    return [partition.rows for partition in partitions]


def test_few_columns_need_fewer_partitions(folder: Path) -> None:
    frame = read(folder, partition_size=SIZE)
    assert frame.npartitions > FILES / 3
    narrow = select_source(frame, ["key"])
    assert row_counts(narrow.partitions) == [FILES * ROWS]
    every = select_source(frame, list(frame.columns))
    assert len(every.partitions) == frame.npartitions
    assert sum(row_counts(every.partitions)) == FILES * ROWS
    assert narrow.token != every.token


@pytest.mark.parametrize("size", [6_000, 14_000, 100_000])
def test_merged_partitions_have_the_requested_size(folder: Path, size: int) -> None:
    frame = read(folder, columns=["other", "wide0"], partition_size=size)
    before = list(frame.expr.iterables[0])
    merged = merge_neighbors(before, {"other"})
    sizes = [partition.estimate_columns({"other"}) for partition in merged]
    largest = max(partition.estimate_columns({"other"}) for partition in before)
    assert max(sizes) <= size + largest  # indivisible partitions are divided evenly
    assert sum(sizes) == FILES * ROWS * INTEGER
    urls = [url for partition in merged for url in partition.urls]
    assert list(dict.fromkeys(urls)) == [url for part in before for url in part.urls]


def test_columns_of_filters_count(folder: Path) -> None:
    frame = read(folder, partition_size=SIZE)
    wide = frame[(frame.wide0 > 0) & (frame.wide1 > 0) & (frame.wide2 > 0)]
    assert len(select_source(wide, ["key"]).partitions) == 2
    filters = [(f"wide{number}", ">=", 0.0) for number in range(10)]
    filtered = read(folder, columns=["key"], filters=filters, partition_size=SIZE)
    [part, *_] = filtered.expr.iterables[0]
    assert part.estimate_columns({"key"}) == part.rows * (INTEGER + 10 * 8)


def test_merged_partitions_keep_their_bounds(folder: Path) -> None:
    frame = read(folder, partition_size=SIZE)
    [merged] = select_source(frame, ["other"]).partitions
    assert merged.bounds("other") == (0, FILES * ROWS - 1)
    assert merged.bounds("wide0") is None


def test_results_are_those_of_all_rows(folder: Path) -> None:
    right = pd.DataFrame({"key": np.arange(3, dtype="int8"), "name": ["a", "b", "c"]})
    right.to_parquet(folder.parent / "names.parquet")
    frame, whole = read(folder, partition_size=SIZE), pd.read_parquet(folder)
    joined = join(frame, folder.parent / "names.parquet", "key")
    assert len(select_source(joined, ["name", "other"]).partitions) < joined.npartitions
    with dask.config.set(scheduler="sync"):
        by_key = group_agg(frame[frame.other >= 250], "key", {"other": ["sum", "nunique"]})
        counts = window_counts(frame, "time", "10min", target="key").compute()
        by_name = group_agg(joined, "name", {"other": "sum"}).compute()
        groups = by_key.compute()
    expected = whole[whole.other >= 250].groupby("key").other.agg(["sum", "nunique"])
    assert groups.to_numpy().tolist() == expected.to_numpy().tolist()
    assert by_name.iloc[:, 0].to_dict() == dict(
        zip("abc", whole.groupby("key").other.sum(), strict=True)
    )
    assert counts.select_dtypes("number").to_numpy().sum() == FILES * ROWS
