"""Distinct rows of text that are found with Parquet's dictionaries are those of Polars."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from hyperplane.collections.frames.read import read
from hyperplane.dataframe import drop_duplicates
from hyperplane.errors import ReadError
from hyperplane.formats.parquet import text_dictionaries
from hyperplane.formats.parquet.text_dictionaries import read_distinct_rows

DRAW = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with dask.config.set(scheduler="synchronous"):
        yield


def _draw(rows: int, values: int, first: int = 0) -> list[str | None]:
    numbers = DRAW.integers(first, first + values, rows).tolist()
    return [None if number % 7 == 5 else f"text {number}" for number in numbers]


def _make_table(rows: int = 2_000, first: int = 0) -> pa.Table:
    numbers = DRAW.integers(-5, 20, rows)
    columns: dict[str, Any] = {"a": _draw(rows, 60, first), "b": _draw(rows, 9), "number": numbers}
    columns["some"] = pa.array(numbers, pa.int16(), mask=numbers % 4 == 0)
    columns["none"] = pa.array([None] * rows, pa.uint32())
    columns["wide"] = numbers.astype(np.int64) * (2**63 // 20)
    columns["real"] = numbers / 2
    return pa.table(columns)


def _get_partition(folder: Path, **options: Any) -> Any:
    (part,) = read(str(folder / "*.parquet"), partition_size="1GB", **options).expr.iterables[0]
    return part


def _check(folder: Path, names: list[str]) -> None:
    found = read_distinct_rows(_get_partition(folder), names)
    rows = pl.read_parquet(sorted(folder.glob("*.parquet")), columns=names).select(names)
    expected = rows.unique()
    assert found is not None
    assert found.schema == expected.schema
    assert found.sort(names).equals(expected.sort(names))


@pytest.mark.parametrize(
    "names",
    [["a"], ["b", "a"], ["number", "a"], ["a", "some", "none"], ["none", "b", "some", "number"]],
    ids="-".join,
)
@pytest.mark.parametrize(
    "options", [{}, {"use_dictionary": False}, {"dictionary_pagesize_limit": 99}]
)
def test_rows_of_several_row_groups_and_files_are_those_of_polars(
    names: list[str], options: Any, tmp_path: Path
) -> None:
    for number in range(3):
        table = _make_table(first=40 * number)
        parquet.write_table(table, tmp_path / f"{number}.parquet", row_group_size=700, **options)
    _check(tmp_path, names)


def test_no_rows(tmp_path: Path) -> None:
    parquet.write_table(_make_table(0), tmp_path / "0.parquet")
    assert not len(drop_duplicates(read(str(tmp_path / "*.parquet"), columns=["a", "b"])))


def test_one_row_group_without_values(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([None] * 9, pa.string()), "b": ["x"] * 9})
    parquet.write_table(table, tmp_path / "0.parquet")
    _check(tmp_path, ["a", "b"])


def test_large_strings_and_files_of_polars(tmp_path: Path) -> None:
    pl.DataFrame(_make_table()).write_parquet(tmp_path / "0.parquet", row_group_size=600)
    _check(tmp_path, ["a", "b"])


@pytest.mark.parametrize(
    ("names", "options"),
    [
        (["number"], {}),
        (["a", "real"], {}),
        (["a", "wide"], {}),
        (["a"], {"filters": [("number", "<", 9)]}),
        (["a"], {"on_error": "skip"}),
    ],
)
def test_other_rows_are_read_by_polars(names: list[str], options: Any, tmp_path: Path) -> None:
    parquet.write_table(_make_table(), tmp_path / "0.parquet")
    assert read_distinct_rows(_get_partition(tmp_path, **options), names) is None


def test_rare_repeats_are_found_by_polars(tmp_path: Path) -> None:
    texts = [f"text {number}" for number in range(900)]
    parquet.write_table(pa.table({"a": texts + texts[:90]}), tmp_path / "0.parquet")
    assert read_distinct_rows(_get_partition(tmp_path), ["a"]) is None
    assert len(drop_duplicates(read(str(tmp_path / "*.parquet")))) == 900


def test_stored_numbers_of_texts_are_read_by_polars(tmp_path: Path) -> None:
    table = _make_table()
    table = table.set_column(0, "a", table.column("a").dictionary_encode())
    parquet.write_table(table, tmp_path / "0.parquet")
    assert read_distinct_rows(_get_partition(tmp_path), ["a"]) is None


def test_damaged_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "0.parquet"
    parquet.write_table(_make_table(), path)
    df = read(str(path), columns=["a", "b"])
    data = bytearray(path.read_bytes())
    data[4:400] = bytes(396)
    path.write_bytes(data)
    (part,) = df.expr.iterables[0]
    assert read_distinct_rows(part, ["a", "b"]) is None
    with pytest.raises(ReadError, match=r"0\.parquet"):
        drop_duplicates(df).compute()


def test_distinct_rows_of_a_collection_are_found_with_dictionaries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        parquet.write_table(_make_table(first=30 * number), tmp_path / f"{number}.parquet")
    df = read(str(tmp_path / "*.parquet"), columns=["a", "b"])
    results = []

    def read_rows(partition: Any, names: list[str]) -> pl.DataFrame | None:
        results.append(read_distinct_rows(partition, names))
        return results[-1]

    monkeypatch.setattr(text_dictionaries, "read_distinct_rows", read_rows)
    found = drop_duplicates(df).compute()
    assert results
    assert None not in [None if rows is None else len(rows) for rows in results]
    expected = df.compute().drop_duplicates()
    one, other = (each.sort_values(["a", "b"], ignore_index=True) for each in (found, expected))
    pd.testing.assert_frame_equal(one, other)
