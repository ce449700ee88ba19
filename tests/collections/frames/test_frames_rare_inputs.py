"""Valid but rare inputs: unknown categories, long lists, differing types."""

import asyncio
from decimal import Decimal

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

from hyperplane.dataframe import (
    drop_duplicates,
    group_agg,
    read,
    repartition,
    to_datetime,
    top_n_per_group,
    value_counts,
    window_counts,
)
from hyperplane.errors import DataError, RequestError


@pytest.fixture(autouse=True)
def _synchronous():
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture
def letters():
    frame = pd.DataFrame({"c": ["a", "b", "a", "c"], "x": [1, 2, 3, 4]})
    df = dd.from_pandas(frame, npartitions=2)
    return df.assign(c=df["c"].astype("category"))


@pytest.mark.parametrize("split_out", [1, 2])
def test_categories_that_dask_does_not_know_are_groups(letters, split_out):
    result = group_agg(letters, "c", {"x": "sum"}, split_out=split_out).compute()
    assert result["x"].to_dict() == {"a": 4, "b": 2, "c": 4}


def test_results_have_the_categories_that_dask_does_not_know(letters):
    assert sorted(drop_duplicates(letters, "c").compute()["c"]) == ["a", "b", "c"]
    assert top_n_per_group(letters, "c", "x", 1).compute()["c"].to_list() == ["a", "b", "c"]
    assert value_counts(letters, "c").compute().to_dict() == {"a": 2, "b": 1, "c": 1}
    assert group_agg(letters, "x", {"c": "first"}).compute()["c"].to_list() == list("abac")


@pytest.mark.parametrize("how", [{"format": "%d-%m-%Y"}, {"dayfirst": True}])
def test_the_year_of_a_date_with_dashes_is_not_an_offset(how):
    df = dd.from_pandas(pd.DataFrame({"d": ["31-01-2026"]}), npartitions=1)
    assert to_datetime(df, "d", **how).compute()["d"].to_list() == [pd.Timestamp("2026-01-31")]


@pytest.mark.parametrize("text", ["2026-01-31T10:00+02:00", "2026-01-31 10:00:00.5 +0200"])
def test_an_offset_after_a_time_is_recognized(text):
    df = dd.from_pandas(pd.DataFrame({"d": [text]}), npartitions=1)
    with pytest.raises(DataError, match="utc=True"):
        to_datetime(df, "d").compute()


@pytest.mark.parametrize("make", [lambda n: n, str, float], ids=["int", "str", "float"])
def test_long_lists_of_values_are_looked_up_at_once(tmp_path, make):
    values = [make(number) for number in range(30_000)]
    frame = pd.DataFrame({"a": values, "k": 1})
    frame.to_parquet(tmp_path / "a.parquet")
    wanted = values[::3]
    assert len(read(tmp_path / "a.parquet", filters=[("a", "in", wanted)])) == 10_000
    df = read(tmp_path / "a.parquet")
    assert group_agg(df[df["a"].isin(wanted)], "k", {"a": "count"}).compute()["a"][1] == 10_000


def test_values_outside_the_type_match_no_row(tmp_path):
    frame = pd.DataFrame({"a": np.array([1, 2, 3], dtype="uint8")})
    frame.to_parquet(tmp_path / "a.parquet")
    kept = read(tmp_path / "a.parquet", filters=[("a", "in", [2, 300, -1, 1.5])])
    assert kept.compute()["a"].to_list() == [2]


def median(values):
    return values.max()


@pytest.mark.parametrize("function", [median, np.std, np.var], ids=["own", "std", "var"])
def test_functions_are_known_by_identity_not_by_name(letters, function):
    with pytest.raises(RequestError, match=r"agg\['x'\]"):
        group_agg(letters, "c", {"x": function})


def test_callables_of_python_numpy_and_pandas_are_accepted(letters):
    functions = [sum, np.mean, pd.Series.nunique, max]
    result = group_agg(letters, "c", {"x": functions}).compute()
    assert result.loc["a"].to_list() == [4, 2.0, 2, 3]


@pytest.mark.parametrize("function", ["sum", "min", "max", "count", "first", "nunique"])
def test_decimals_are_aggregated_as_in_pandas(function):
    kind = pd.ArrowDtype(pa.decimal128(10, 2))
    values = pd.array([Decimal("1.25"), Decimal("2.50"), Decimal("3")], dtype=kind)
    frame = pd.DataFrame({"k": [1, 1, 2], "v": values})
    result = group_agg(dd.from_pandas(frame, npartitions=2), "k", {"v": function}).compute()
    pd.testing.assert_frame_equal(result, frame.groupby("k").agg({"v": function}))


def test_equal_values_of_different_types_are_one_group():
    frames = [pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [2.0, np.nan]})]
    parts = [dask.delayed(frames[number % 2]) for number in range(18)]
    df = dd.from_delayed(parts, meta=frames[0], verify_meta=False)
    assert sorted(drop_duplicates(df, split_out=3).compute()["a"].dropna()) == [1, 2]


def test_reserved_names_are_refused():
    frame = pd.DataFrame({"__bin__": [1], "x": [1]})
    with pytest.raises(RequestError, match="begin and end with"):
        group_agg(dd.from_pandas(frame, npartitions=1), "x", {"__bin__": "sum"})


@pytest.mark.parametrize("by", [0, 5])
def test_a_key_that_is_not_text_is_named(letters, by):
    with pytest.raises(RequestError, match=f"by = {by}"):
        group_agg(letters, by, {"x": "sum"})


@pytest.mark.parametrize("categories", [["a", "a"], [1, "a"], [None, "a"]])
def test_categories_are_checked_at_the_call(categories):
    frame = pd.DataFrame({"t": pd.to_datetime(["2026-01-01"]), "k": ["a"]})
    df = dd.from_pandas(frame, npartitions=1)
    with pytest.raises(RequestError, match="each once and none missing"):
        window_counts(df, "t", "1h", "k", categories=categories)


def test_helpers_build_under_an_asynchronous_client(letters):
    async def build():
        async with Client(processes=False, asynchronous=True, dashboard_address=":0") as client:
            result = group_agg(letters, "c", {"x": "nunique"})
            smaller = repartition(letters, data_size="1MB")
            return await client.compute(result), smaller.npartitions

    with dask.config.set(scheduler=None):
        table, number = asyncio.run(build())
    assert table["x"].to_dict() == {"a": 2, "b": 1, "c": 1}
    assert number == 1


def test_nan_counts_as_missing_in_a_filter_that_is_applied_before_columns_are_made(tmp_path):
    frame = pd.DataFrame({"x": [1.0, np.nan, 30.0, 5.0], "k": ["a", "a", "b", "b"]})
    table = pa.table({"x": pa.array([1.0, np.nan, 30.0, 5.0]), "k": frame.k.to_list()})
    pq.write_table(table, tmp_path / "a.parquet")  # NaN, not null
    df = read(tmp_path)
    for chosen, want in (
        (df[df.x > 4], frame[frame.x > 4]),
        (df[df.x >= 1], frame[frame.x >= 1]),
        (df[~(df.x > 4)], frame[~(frame.x > 4)]),
        (df[df.x < 4], frame[frame.x < 4]),
        (df[df.x.isna()], frame[frame.x.isna()]),
        (df[df.x.notnull()], frame[frame.x.notna()]),
    ):
        result = group_agg(chosen, "k", {"x": "size"}).compute(scheduler="sync")
        assert result.x.to_dict() == want.groupby("k").size().to_dict()
