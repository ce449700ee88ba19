"""Columns of expressions and the columns of files that they have their values from."""

from __future__ import annotations

import dask.dataframe as dd
import pandas as pd
import pytest

from hyperplane.collections.frames.source_columns import find_source_column


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    path = tmp_path_factory.mktemp("tables")
    pd.DataFrame({"k": [1, 2], "v": [0.5, 1.5], "w": [1, 2]}).to_parquet(path / "left.parquet")
    pd.DataFrame({"k": [1, 2], "w": [3, 4], "x": [5, 6]}).to_parquet(path / "right.parquet")
    return dd.read_parquet(path / "left.parquet"), dd.read_parquet(path / "right.parquet")


@pytest.mark.parametrize(
    ("make", "column", "side", "name", "complete"),
    [
        (lambda a, b: a, "k", 0, "k", True),
        (lambda a, b: a[["k", "v"]].assign(y=1).reset_index(drop=True), "v", 0, "v", True),
        (lambda a, b: a.rename(columns={"v": "k", "k": "v"}), "v", 0, "k", True),
        (lambda a, b: a.rename(columns=str.upper), "W", 0, "w", True),
        (lambda a, b: a[a.v > 1].dropna(), "k", 0, "k", False),
        (lambda a, b: a.dropna(), "k", 0, "k", True),
        (lambda a, b: a.merge(b, on="k"), "k", 0, "k", False),
        (lambda a, b: a.merge(b, on="k"), "x", 1, "x", False),
        (lambda a, b: a.merge(b, on="k", how="right"), "k", 1, "k", False),
        (lambda a, b: a.sort_values("k"), "v", 0, "v", True),
    ],
)
def test_unchanged_values_have_a_source(tables, make, column, side, name, complete):
    found = find_source_column(make(*tables).expr, column)
    assert found is not None
    assert found.source.path == tables[side].expr.path
    assert (found.name, found.has_all_rows) == (name, complete)


@pytest.mark.parametrize(
    ("make", "column"),
    [
        (lambda a, b: a.assign(k=a.k + 1), "k"),
        (lambda a, b: a.merge(b, on="k", how="outer"), "k"),  # of both tables
        (lambda a, b: a.merge(b, on="k"), "w_x"),  # renamed by the join
        (lambda a, b: a.merge(b, on="k", suffixes=("", "_r")), "w"),
        (lambda a, b: a, "missing"),
        (lambda a, b: a.reset_index(), "index"),
        (lambda a, b: a.map_partitions(lambda part: part), "k"),
    ],
)
def test_values_that_may_have_changed_have_none(tables, make, column):
    assert find_source_column(make(*tables).expr, column) is None
