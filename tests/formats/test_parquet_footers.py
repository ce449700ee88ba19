"""Footers: what is kept of them, and files whose schemas only look equal."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from hyperplane.collections.frames.read import read
from hyperplane.formats.parquet import footers
from hyperplane.objectstore.listing import find_files


def _write(path: Path, table: pa.Table, **options: object) -> None:
    parquet.write_table(table, path, **options)


def _table(start: int) -> pa.Table:
    numbers = range(start, start + 10)
    return pa.table({"n": numbers, "word": [f"w{number}" for number in numbers], "x": [0.5] * 10})


@pytest.mark.parametrize("cached_seconds", [0, 60], ids=["threads", "one thread"])
def test_footers_are_the_same_with_and_without_threads(tmp_path, monkeypatch, cached_seconds):
    monkeypatch.setattr(footers, "_CACHED_SECONDS", cached_seconds)
    monkeypatch.setattr(footers, "_TIMED_FILES", 3)
    for number in range(12):
        _write(tmp_path / f"{number}.parquet", _table(number * 10), row_group_size=4)
    for number in (2, 9):  # among the first files, and among those of the threads
        (tmp_path / f"{number}.parquet").write_bytes(b"PAR1 damaged PAR1")
    found, errors = footers.read_footers(find_files(tmp_path), None)
    assert [Path(error.url).name for error in errors] == ["2.parquet", "9.parquet"]
    numbers = [int(Path(footer.file.path).stem) for footer in found]
    assert numbers == [0, 1, 3, 4, 5, 6, 7, 8, 10, 11]
    for number, footer in zip(numbers, found, strict=True):
        assert [group.rows for group in footer.row_groups] == [4, 4, 2]
        leaf = footer.layout.leaves["n"][0]
        bounds = [(group.chunks[leaf].low, group.chunks[leaf].high) for group in footer.row_groups]
        assert bounds == [
            (number * 10 + first, number * 10 + last) for first, last in ((0, 3), (4, 7), (8, 9))
        ]


def test_only_statistics_of_requested_columns_are_kept(tmp_path):
    _write(tmp_path / "a.parquet", _table(0))
    [footer], _ = footers.read_footers(find_files(tmp_path), {"word", "absent"})
    assert set(footer.row_groups[0].chunks) == {footer.layout.leaves["word"][0]}


@pytest.mark.parametrize("container", [list, tuple])
def test_a_filter_by_a_column_that_is_not_returned_uses_its_statistics(tmp_path, container):
    for number in range(3):
        _write(tmp_path / f"{number}.parquet", _table(number * 10))
    columns, filters = container(["word"]), container([("n", ">=", 25)])
    frame = read(tmp_path, columns, filters)
    assert frame.npartitions == 1
    assert frame.compute()["word"].tolist() == ["w25", "w26", "w27", "w28", "w29"]
    nested = read(tmp_path, columns, [[("n", "==", 3)], [("x", ">", 1)]])
    assert nested.compute()["word"].tolist() == ["w3"]


def test_columns_of_any_collection_may_be_requested(tmp_path):
    _write(tmp_path / "a.parquet", _table(0))
    assert list(read(tmp_path, dict.fromkeys(["x", "n"])).columns) == ["x", "n"]


def test_bytes_of_one_file_that_are_uuids_in_the_next(tmp_path):
    values = [uuid.UUID(int=number).bytes for number in range(3)]
    _write(
        tmp_path / "a.parquet", pa.table({"n": range(3), "key": pa.array(values, pa.binary(16))})
    )
    typed = pa.array(values, pa.binary(16)).cast(pa.uuid())
    _write(tmp_path / "b.parquet", pa.table({"n": range(3), "key": typed}))
    found, _ = footers.read_footers(find_files(tmp_path), None)
    kinds = [str(footer.layout.schema.field("key").type) for footer in found]
    assert kinds == ["fixed_size_binary[16]", "extension<arrow.uuid>"]


def test_a_column_without_nulls_by_its_statistics_keeps_its_type(tmp_path):
    kinds = {"sure": False, "maybe": True}
    schema = pa.schema([pa.field(name, pa.int64(), nullable) for name, nullable in kinds.items()])
    for number, last in enumerate((3, None)):
        table = pa.table({"sure": [1, 2], "maybe": [1, last]}, schema)
        _write(tmp_path / f"{number}.parquet", table)
    dtypes = read(tmp_path).dtypes.astype(str).to_dict()
    assert dtypes == {"sure": "int64", "maybe": "Int64"}
    assert read(tmp_path / "0.parquet").dtypes.astype(str).to_dict()["maybe"] == "int64"


def test_times_after_the_year_9999_have_unknown_bounds(tmp_path):
    far = 10**12  # days, or seconds
    days = pa.array([[1], [far]], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("s")))
    flat = pa.array([1, far], pa.int64()).cast(pa.timestamp("s"))
    _write(tmp_path / "a.parquet", pa.table({"n": [1, 2], "times": days, "time": flat}))
    [footer], errors = footers.read_footers(find_files(tmp_path), None)
    assert errors == []
    chunks = footer.row_groups[0].chunks
    bounds = {name: chunks[leaves[0]].low for name, leaves in footer.layout.leaves.items()}
    assert bounds == {"n": 1, "times": None, "time": None}
    assert read(tmp_path, ["n"]).compute()["n"].tolist() == [1, 2]
