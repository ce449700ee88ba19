"""Distinct rows that are found with a table of hashes are those of Polars and pandas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pytest

from hyperplane.collections.frames.kernels import distinct_rows
from hyperplane.dataframe import drop_duplicates

KEYS = (
    ["text"],
    ["text", "number"],
    ["real"],
    ["text", "real", "truth"],
    ["large"],
    ["day", "text"],
)


def _make_table(rows: int, values: int) -> pl.DataFrame:
    drawn = np.random.default_rng(rows).integers(0, values, rows)
    real = np.select([drawn % 5 == 0, drawn % 5 == 1, drawn % 5 == 2], [np.nan, -0.0, 0.0], drawn)
    texts = [None if number % 11 == 3 else f"text {number}" for number in drawn.tolist()]
    return pl.DataFrame(
        {
            "text": pl.Series(texts, dtype=pl.String),
            "number": drawn,
            "real": real,
            "large": drawn + 2**53,  # equal as floats
            "truth": drawn % 2 == 0,
            "day": pl.Series(drawn % 1000).cast(pl.Date),
        }
    )


def _check(table: pl.DataFrame, keys: list[str], keep: Any) -> None:
    found = table.filter(distinct_rows.find_distinct_rows(table, keys, keep))
    expected = table.unique(keys, keep=keep, maintain_order=True)
    assert found.equals(expected)


@pytest.mark.parametrize("keep", ["first", "last"])
@pytest.mark.parametrize("keys", KEYS, ids="-".join)
@pytest.mark.parametrize("few", [10, 0])
def test_rows_are_those_of_polars(
    keys: list[str], keep: Any, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distinct_rows, "_FEW_ROWS", few)
    for rows, values in ((0, 1), (1, 1), (7, 3), (1_000, 30), (3_000, 2_000), (3_000, 10**9)):
        _check(_make_table(rows, values), keys, keep)


@pytest.mark.parametrize("keep", ["first", "last"])
@pytest.mark.parametrize("hashes", [1, 20])
def test_different_keys_with_equal_hashes_are_kept(
    keep: Any, hashes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_hash = distinct_rows._hash
    monkeypatch.setattr(
        distinct_rows, "_hash", lambda columns: make_hash(columns) % np.uint64(hashes)
    )
    monkeypatch.setattr(distinct_rows, "_FEW_ROWS", 0)
    _check(_make_table(2_000, 300), ["text", "number"], keep)


def test_only_tables_with_text_are_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distinct_rows, "_MIN_ROWS", 5)
    table = _make_table(5, 5).with_columns(texts=pl.concat_list("text"))
    assert distinct_rows.can_find_distinct_rows(table, ["text", "number", "real", "day", "truth"])
    assert not distinct_rows.can_find_distinct_rows(table, ["number"])
    assert not distinct_rows.can_find_distinct_rows(table, ["text", "texts"])
    assert not distinct_rows.can_find_distinct_rows(table.head(4), ["text"])


@pytest.mark.parametrize("subset", [None, ["text"]])
def test_large_results_equal_pandas(
    subset: list[str] | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(distinct_rows, "_MIN_ROWS", 100)
    monkeypatch.setattr(distinct_rows, "_FEW_ROWS", 20)
    frame = _make_table(4_000, 700).to_pandas()[["text", "number", "real"]]
    frame["real"] = frame["real"] + 0.0  # without a negative zero, of which either one is kept
    df = dd.from_pandas(frame, npartitions=4)
    used = []
    find = distinct_rows.find_distinct_rows

    def find_distinct_rows(*arguments: Any) -> pl.Series:
        used.append(arguments)
        return find(*arguments)

    monkeypatch.setattr(distinct_rows, "find_distinct_rows", find_distinct_rows)
    with dask.config.set(scheduler="synchronous"):
        result = drop_duplicates(df, subset, split_out=2).compute()
    assert used
    columns = ["text", "number", "real"]
    expected = frame.drop_duplicates(subset).sort_values(columns, ignore_index=True)
    result = result.sort_values(columns, ignore_index=True)
    pd.testing.assert_frame_equal(result, expected, check_dtype=False)


@pytest.mark.parametrize("keep", ["first", "last"])
@pytest.mark.parametrize("values", [10**9, 900, 20])
def test_partitions_keep_all_rows_if_few_are_repeated(
    keep: Any, values: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distinct_rows, "_FIRST_ROWS", 500)
    monkeypatch.setattr(distinct_rows, "_FEW_ROWS", 0)
    table = _make_table(6_000, values).with_columns(text=pl.format("{}", "number"))
    table = pl.concat([table, table.head(100)])
    found = distinct_rows.read_distinct_rows(table.lazy(), ["text", "number"], keep)
    expected = table.unique(["text", "number"], keep=keep, maintain_order=True)
    if values == 20:  # Polars reads them
        assert found is None
        return
    assert found is not None
    assert found.equals(table if values == 10**9 else expected)
    assert distinct_rows.read_distinct_rows(table.lazy(), ["number"], keep) is None
    assert distinct_rows.read_distinct_rows(table.head(499).lazy(), ["text"], keep) is None


@pytest.mark.parametrize("keep", ["first", "last"])
@pytest.mark.parametrize("values", [10**9, 900])
@pytest.mark.parametrize("into", [1, 3])
def test_partitions_with_repeats_are_combined(
    keep: Any, values: int, into: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distinct_rows, "_FIRST_ROWS", 100)
    frame = _make_table(2_000, values).select("text", "number").to_pandas()
    frame["text"] = [f"text {number}" for number in frame["number"]]
    frame = pd.concat([frame, frame.iloc[:90], frame.iloc[1_000:1_200]], ignore_index=True)
    frame["place"] = np.arange(len(frame))
    df = dd.from_pandas(frame, npartitions=3, sort=False)
    with dask.config.set(scheduler="synchronous"):
        result = drop_duplicates(df, ["text"], keep=keep, split_out=into).compute()
    expected = frame.drop_duplicates("text", keep=keep).reset_index(drop=True)
    result = result.sort_values("place", ignore_index=True)
    pd.testing.assert_frame_equal(result, expected, check_dtype=False)
