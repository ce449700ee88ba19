"""Parquet files of Dask's reader are read by Polars in joins, with the same rows and types."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hyperplane.collections.frames.dask_parquet import replace_parquet_reads
from hyperplane.collections.frames.filter_pushdown import extract_filters
from hyperplane.collections.frames.join_kinds import SELECTING
from hyperplane.collections.frames.joined_partition import JoinedPartition
from hyperplane.dataframe import join
from tests.scale import combinations


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files of ten rows, in an order that is not that of their names as text."""
    for number in (1, 2, 10):
        rows = np.arange(10 * number, 10 * number + 10)
        frame = pd.DataFrame({"id": rows, "name": [f"n{row}" for row in rows], "part": number})
        frame["value"] = np.where(rows % 3 == 0, np.nan, rows / 2)
        frame["time"] = pd.Timestamp("2026-03-01", tz="Europe/Oslo") + pd.to_timedelta(rows, "h")
        frame.to_parquet(tmp_path / f"{number}.parquet")
    return tmp_path


def _is_scanned(df: Any) -> bool:
    return extract_filters(replace_parquet_reads(df).expr) is not None


def test_rows_types_and_order_are_those_of_dask(folder: Path) -> None:
    df = dd.read_parquet(folder)[["time", "value", "name", "id"]]
    for rows in (df, df[df["id"] > 12], dd.read_parquet(folder, columns=["name", "value"])):
        scanned = replace_parquet_reads(rows)
        assert _is_scanned(rows)
        pd.testing.assert_frame_equal(scanned._meta, rows._meta)
        wanted = rows.compute(scheduler="sync").reset_index(drop=True)
        result = scanned.compute(scheduler="sync").reset_index(drop=True)
        pd.testing.assert_frame_equal(result, wanted)


def test_joins_are_those_of_pandas_without_a_shuffle(folder: Path) -> None:
    left = dd.read_parquet(folder)
    right = dd.read_parquet(folder, columns=["id", "name"])
    right = right[right["id"] < 25]
    joined = join(left, right, "id", "left")
    assert all(isinstance(part, JoinedPartition) for part in joined.expr.iterables[0])
    frames = [side.compute(scheduler="sync") for side in (left, right)]
    wanted = frames[0].merge(frames[1], on="id", how="left")
    result = joined.compute(scheduler="sync").reset_index(drop=True)
    pd.testing.assert_frame_equal(result, wanted)


#: Indexes that pandas stores as columns of the file, and whether Polars reads such files.
STORED_INDEXES: dict[str, tuple[Callable[[int], pd.Index], bool]] = {
    "numbers with a name": (lambda rows: pd.Index(np.arange(rows)[::-1] * 3, name="row"), True),
    "numbers": (lambda rows: pd.Index(np.arange(rows)[::-1] * 3), False),
    "text": (lambda rows: pd.Index([f"r{row}" for row in range(rows)], name="label"), False),
    "times": (lambda rows: pd.date_range("2026-01-01", periods=rows, name="at"), False),
}


@pytest.mark.filterwarnings("ignore:.*inplace keyword")  # of Dask's reader
@pytest.mark.parametrize(
    ("index", "how"), combinations(list(STORED_INDEXES), ["inner", "left", "semi", "anti"])
)
def test_joins_drop_a_stored_index_as_pandas_does(index: str, how: Any, tmp_path: Path) -> None:
    make_index, is_scanned = STORED_INDEXES[index]
    for side, rows in (("left", 40), ("right", 20)):
        (tmp_path / side).mkdir()
        for file in range(2):
            frame = pd.DataFrame({"id": np.arange(rows) * (file + 1) % 23, side: range(rows)})
            frame.index = make_index(rows)
            frame.to_parquet(tmp_path / side / f"{file}.parquet")
    left, right = (dd.read_parquet(tmp_path / side) for side in ("left", "right"))
    frames = [
        pd.concat(map(pd.read_parquet, sorted((tmp_path / side).iterdir())))
        for side in ("left", "right")
    ]
    assert [_is_scanned(side) for side in (left, right)] == [is_scanned] * 2
    joined = join(left, right, "id", how)
    if how in SELECTING:
        has_match = frames[0]["id"].isin(frames[1]["id"])
        wanted = frames[0][has_match if how == "semi" else ~has_match]
    else:
        wanted = frames[0].merge(frames[1], on="id", how=how)
    result = joined.compute(scheduler="sync")
    assert list(joined.columns) == list(wanted.columns)
    assert result.index.names == joined._meta.index.names == [None]
    names = list(wanted.columns)
    rows = [each.sort_values(names).reset_index(drop=True) for each in (result, wanted)]
    pd.testing.assert_frame_equal(*rows, check_dtype=how != "left")


def test_other_reads_are_left_to_dask(folder: Path, tmp_path: Path) -> None:
    files = sorted(map(str, folder.glob("*.parquet")))
    missing = tmp_path / "missing.parquet"
    pq.write_table(pa.table({"id": pa.array([1, 2, None])}), missing)
    pd.DataFrame({"id": [1]}).to_parquet(tmp_path / "part-[1].parquet")
    (tmp_path / "hive" / "day=1").mkdir(parents=True)
    pd.DataFrame({"id": [1]}).to_parquet(tmp_path / "hive" / "day=1" / "a.parquet")
    frame = dd.read_parquet(files)
    others = {
        "filters": dd.read_parquet(files, filters=[("id", ">", 12)]),
        "folders": dd.read_parquet(tmp_path / "hive"),
        "types": dd.read_parquet(files, dtype_backend="pyarrow"),
        "file given twice": dd.read_parquet([*files, files[0]]),
        "some partitions": frame.partitions[1:],
        "other step": frame.assign(id=1),
        "filter that is not translated": frame[frame["name"].str.len() > 2],
        "missing integers": dd.read_parquet(missing),
        "name that is a pattern": dd.read_parquet(tmp_path / "part-[1].parquet"),
        "two reads": dd.concat([frame, dd.read_parquet(files[0])]),
    }
    assert [name for name, df in others.items() if replace_parquet_reads(df) is not df] == []
