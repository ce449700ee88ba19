"""Filters that are translated to Polars, and filters that Dask applies."""

from __future__ import annotations

import operator
from functools import reduce

import dask
import numpy as np
import pandas as pd
import pandas_results
import pytest
from frame_strategies import KINDS, QUICK, column, open_files
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import scaled

from hyperplane.collections.frames.source_collection import open_partition, select_source
from hyperplane.dataframe import drop_duplicates, group_agg
from hyperplane.formats.pandas_frames.column_names import escape_columns

COMPARE = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
#: Kinds that Parquet preserves, with constants to compare with.
CONSTANTS = {
    "int64": [-3, 0, 2, 1.5, 2**60, True],
    "uint8": [-1, 0, 200, 300, 0.5],
    "float64": [0.0, -0.0, 1.5, 2, float("inf"), float("nan")],
    "infinite": [0.0, np.inf, -np.inf, 10**30],
    "float32": [0.1, 0.0, 1.5, 2],
    "Int64": [0, 1, -5.5],
    "boolean": [True, False],
    "bool": [True, False, 1],
    "str": ["a", "", "ä", "zz"],
    "datetime": [pd.Timestamp("2024-01-01"), pd.Timestamp("1950-01-01 00:00:00.000000001")],
    "zoned": [pd.Timestamp("2024-01-01", tz="Asia/Kolkata")],
    "timedelta": [pd.Timedelta("1s")],
}


@pytest.fixture(scope="module")
def files():
    with open_files() as opened:
        yield opened


@st.composite
def tables(draw):
    rows = draw(st.integers(0, 20))
    kinds = draw(st.lists(st.sampled_from(sorted(CONSTANTS)), min_size=2, max_size=3))
    columns = {f"c{n}": draw(column(kind, rows)) for n, kind in enumerate(kinds)}
    return pd.DataFrame({"row": np.arange(rows), **columns}), kinds


@st.composite
def conditions(draw, kinds):
    """Draw a function from a frame of pandas or Dask to a condition."""
    number = draw(st.integers(0, len(kinds) - 1))
    name, values = f"c{number}", CONSTANTS[kinds[number]]
    how = draw(
        st.sampled_from(["compare", "compare", "isin", "isna", "notnull", "and", "or", "not"])
    )
    if how == "compare":
        compare, value = draw(st.sampled_from(COMPARE)), draw(st.sampled_from(values))
        return lambda df: compare(df[name], value)
    if how == "isin":
        some = draw(st.lists(st.sampled_from(values), max_size=3))
        return lambda df: df[name].isin(some)
    if how in ("isna", "notnull"):
        return lambda df: getattr(df[name], how)()
    if how == "not":
        inner = draw(conditions(kinds))
        return lambda df: ~inner(df)
    one, other = draw(conditions(kinds)), draw(conditions(kinds))
    joined = operator.and_ if how == "and" else operator.or_
    return lambda df: joined(one(df), other(df))


@settings(QUICK, max_examples=scaled(14, 120))
@given(data=st.data(), table=tables())
def test_rows_equal_pandas(data, files, table):
    frame, kinds = table
    steps = data.draw(st.lists(conditions(kinds), min_size=1, max_size=2), "conditions")
    df = files.parquet(frame, [len(frame) // 2], 4)
    held = df.compute().reset_index(drop=True)
    try:
        want = reduce(lambda rows, step: rows[step(rows)], steps, held)
        lazy = reduce(lambda rows, step: rows[step(rows)], steps, df)
    except (TypeError, ValueError):  # pandas does not support the condition, such as ~ of objects
        return
    columns = list(frame.columns)
    read = select_source(lazy, columns)
    if read.scanned:
        like = escape_columns(lazy._meta[columns])
        tables = [open_partition(piece, like, read.where).collect() for piece in read.partitions]
        rows = [row for table in tables for row in table.get_column("row").to_list()]
    else:
        rows = lazy.row.compute().to_list()
    assert rows == want.row.to_list()


def table(files):
    n = np.arange(40)
    frame = pd.DataFrame(
        {
            "n": n,
            "x": np.where(n % 7 == 0, np.nan, n / 2),
            "word": pd.Series([["a", "b", None][k % 3] for k in n], dtype="str"),
            "time": pd.date_range("2024-01-01", periods=40, freq="h"),
            "flag": n % 2 == 0,
            "maybe": pd.array([None if k % 5 == 0 else k for k in n], dtype="Int64"),
        }
    )
    return files.parquet(frame, [10, 20], 5)


TRANSLATED = {
    "comparison": lambda df: df[df.n >= 10],
    "text": lambda df: df[df.word == "a"],
    "time": lambda df: df[df.time < pd.Timestamp("2024-01-02")],
    "flag": lambda df: df[df.flag == True],  # noqa: E712
    "isin": lambda df: df[df.word.isin(["a", "z"])],
    "isin of times": lambda df: df[df.time.isin([pd.Timestamp("2024-01-01 05:00")])],
    "isin of numbers": lambda df: df[df.n.isin({3, 5, 5.5, 99}) | df.x.isin((1.5, 2))],
    "isna": lambda df: df[df.x.isna() | df.word.isna()],
    "notnull": lambda df: df[df.x.notnull() & (df.n > 3)],
    "not": lambda df: df[~(df.x > 3)],
    "chained": lambda df: df[df.n > 3][df[df.n > 3].x < 9],
    "columns": lambda df: df[["n", "x", "word"]][df.n > 3],
    "one after another": lambda df: (lambda kept: kept[kept.n < 30])(df[df.n > 3]),
    "nothing": lambda df: df,
}
NOT_TRANSLATED = {
    "not equal": lambda df: df[df.n != 10],
    "computed": lambda df: df[df.n + 1 > 10],
    "two columns": lambda df: df[df.n > df.x],
    "text method": lambda df: df[df.word.str.startswith("a", na=False)],
    "nullable": lambda df: df[df.maybe > 3],
    "partitions": lambda df: df.partitions[1:],
    "filter of partitions": lambda df: df.partitions[1:][df.partitions[1:].n > 12],
    "assigned": lambda df: df.assign(n=df.n * 2),
    "renamed": lambda df: df.rename(columns={"n": "m"}).rename(columns={"m": "n"}),
    "map": lambda df: df.map_partitions(lambda part: part.iloc[::2]),
    "bare flag": lambda df: df[df.flag],
    "isin of none": lambda df: df[df.word.isin(["a", None])],
    "isin of nothing": lambda df: df[df.word.isin([])],
    "isin of truths": lambda df: df[df.n.isin([True, False])],
    "isin of a series": lambda df: df[df.n.isin(pd.Series([1, 2]))],
    "between": lambda df: df[df.n.between(3, 9)],
}


def check(df):
    agg = {"n": ["sum", "nunique"], "x": "median"}
    result, rows, held = dask.compute(
        group_agg(df, "word", agg), drop_duplicates(df[["n", "word"]]), df
    )
    pandas_results.same_frame(result, pandas_results.group_agg(held, "word", agg))
    assert pandas_results.rows_of(rows) == pandas_results.rows_of(
        held[["n", "word"]].drop_duplicates()
    )


@pytest.mark.parametrize("name", sorted(TRANSLATED))
def test_polars_applies_translated_filters(files, name):
    df = TRANSLATED[name](table(files))
    assert select_source(df, ["n"]).scanned
    check(df)


@pytest.mark.parametrize("name", sorted(NOT_TRANSLATED))
def test_dask_applies_other_filters(files, name):
    df = NOT_TRANSLATED[name](table(files))
    check(df)
    taken = select_source(df, ["n"])
    assert not taken.scanned
    assert taken.where is None


def test_a_condition_on_another_frame_is_not_translated(files):
    one, two = table(files), table(files)
    assert not select_source(one[two.n > 30], ["n"]).scanned  # Dask aligns the two by their index


def test_a_condition_on_filtered_rows_equals_pandas(files):
    df = table(files)
    kept = df[df.n > 3]
    check(kept[df.n < 30])


def test_only_the_needed_columns_are_scanned(files):
    df = table(files)
    read = select_source(df[df.time < pd.Timestamp("2024-01-02")], ["n"])
    plan = open_partition(read.partitions[0], escape_columns(df._meta[["n"]]), read.where).explain()
    assert "PROJECT 2/6" in plan


def test_all_kinds_are_tested():
    assert set(CONSTANTS) <= set(KINDS)
