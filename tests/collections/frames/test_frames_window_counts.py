"""window_counts against pandas: particular cases."""

from __future__ import annotations

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pandas_results
import pyarrow as pa
import pytest
from dask.delayed import Delayed
from frame_strategies import cut, series

from hyperplane.dataframe import window_counts
from hyperplane.errors import DataError, RequestError


@pytest.fixture(autouse=True)
def in_this_thread():
    with dask.config.set(scheduler="sync"):
        yield


def log(kinds, **columns):
    times = pd.date_range("2024-01-01", periods=len(kinds), freq="20min")
    return pd.DataFrame({"time": times, "kind": kinds, **columns})


def counts(frame, target="kind", by=None, **how):
    partitions = [len(frame) // 3, len(frame) // 2]
    return window_counts(cut(frame, partitions), "time", "1h", target, by, **how).compute()


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (["ä", "日本", "", None, "Z"], "str"),
        ([3, -1, 2, 2, 3], "int64"),
        ([1.5, np.nan, 0.0, 0.0, np.inf], "float64"),
        ([True, False, True, True, False], "bool"),
        ([True, None, True, True, False], "boolean"),
        ([3, None, 2, 2, 3], "Int64"),
        (["b", "a", None, "b", "a"], "category"),
        (["b", "a", None, "b", "a"], pd.CategoricalDtype(["b", "c", "a"], ordered=True)),
        (["2024-01-02", None, "2024-01-01", "2024-01-01", None], "datetime64[us]"),
        (["b", "a", None, "b", "a"], "string[pyarrow]"),
    ],
)
def test_counts_of_values_of_every_type_equal_pandas(values, dtype):
    frame = log(series(values, dtype))
    pandas_results.same_frame(
        counts(frame), pandas_results.window_counts(frame, "time", "1h", ["kind"])
    )


@pytest.mark.parametrize("dtype", [object, "m8[s]", pd.ArrowDtype(pa.duration("us"))])
@pytest.mark.parametrize("declared", [object, "m8[ms]"])
def test_durations_are_named_as_in_pandas_for_any_declared_type(dtype, declared):
    spans = pd.Series(np.array([1, 200_000 * 86_400], "m8[s]"))
    rows = pd.DataFrame({"t": pd.to_datetime(["2024-01-01"] * 2), "k": spans.astype(dtype)})
    meta = rows.iloc[:0].astype({"k": declared})
    df = dd.from_map(lambda _: rows, [0], meta=meta)
    result = window_counts(df, time="t", every="1D", target="k").compute()
    assert list(result.columns) == ["k_0 days 00:00:01", "k_200000 days 00:00:00"]


def test_the_result_is_a_dataframe_if_the_columns_are_known():
    frame = log(series(["b", "a", "b"], pd.CategoricalDtype(["c", "b", "a"])))
    result = window_counts(cut(frame, [1]), "time", "1h", "kind")
    assert isinstance(result, dd.DataFrame)
    assert list(result.columns) == ["kind_c", "kind_b", "kind_a"]
    pandas_results.same_frame(
        result.compute(), pandas_results.window_counts(frame, "time", "1h", ["kind"])
    )


def test_the_result_is_delayed_if_the_columns_are_unknown():
    text = window_counts(cut(log(["b", "a", "b"]), [1]), "time", "1h", "kind")
    assert isinstance(text, Delayed)
    unknown = dd.from_pandas(log(["b", "a", "b"]), npartitions=2)
    unknown = unknown.assign(kind=unknown.kind.astype("category").cat.as_unknown())
    result = window_counts(unknown, "time", "1h", "kind")
    assert isinstance(result, Delayed)
    assert list(result.compute().columns) == ["kind_a", "kind_b"]


def test_given_categories_are_the_columns_in_their_order():
    frame = log(["b", "a", "x", "b"])
    result = window_counts(cut(frame, [2]), "time", "1h", "kind", categories=["z", "b", "a"])
    assert isinstance(result, dd.DataFrame)
    assert result.compute().to_numpy().tolist() == [[0, 1, 0], [0, 1, 1]]
    assert list(result.compute().columns) == ["kind_z", "kind_b", "kind_a"]


def test_targets_with_and_without_categories_are_counted_together():
    frame = log(["b", "a", "b"], size=[1, 2, 1])
    result = counts(frame, ["kind", "size"], categories={"size": [2, 1]})
    assert list(result.columns) == ["kind_a", "kind_b", "size_2", "size_1"]
    want = pandas_results.window_counts(frame, "time", "1h", ["kind", "size"])
    pandas_results.same_frame(result[want.columns], want)


def test_a_value_of_rows_without_a_time_or_key_gets_a_column_of_zeros():
    frame = log(["b", "a", "c"], user=[1.0, 1.0, np.nan])
    frame.loc[1, "time"] = pd.NaT
    for by in (None, "user"):
        result = counts(frame, by=by)
        assert list(result.columns) == ["kind_a", "kind_b", "kind_c"]
        pandas_results.same_frame(
            result, pandas_results.window_counts(frame, "time", "1h", ["kind"], [by] if by else [])
        )


def test_top_keeps_the_most_frequent_and_of_equal_ones_the_smaller():
    frame = log(["d", "d", "c", "b", "b", "a", None, None, None])
    assert list(counts(frame, top=1).columns) == ["kind_b"]
    assert list(counts(frame, top=2).columns) == ["kind_b", "kind_d"]
    assert list(counts(frame, top=3).columns) == ["kind_a", "kind_b", "kind_d"]
    assert list(counts(frame, top=99).columns) == ["kind_a", "kind_b", "kind_c", "kind_d"]


def test_top_counts_rows_that_have_a_window():
    frame = log(["a", "a", "a", "b"])
    frame.loc[:2, "time"] = pd.NaT
    assert list(counts(frame, top=1).columns) == ["kind_b"]


def test_too_many_values_are_an_error_with_advice():
    frame = log([f"value {n}" for n in range(50)])
    with pytest.raises(DataError, match="column 'kind': ") as caught:
        counts(frame, max_values=20)
    assert caught.value.column == "kind"
    for part in ("more than max_values=20", "top=20", "categories=[...]"):
        assert part in str(caught.value)
    assert counts(frame, max_values=50).shape[1] == 50
    assert counts(frame, max_values=20, top=30).shape[1] == 30


def test_too_many_values_are_found_when_no_partition_has_too_many():
    frame = log([f"value {n}" for n in range(30)])
    with pytest.raises(DataError, match="30 distinct values"):
        window_counts(cut(frame, range(1, 30)), "time", "1h", "kind", max_values=20).compute()


def test_without_rows_there_are_no_columns():
    result = counts(log(pd.Series([], dtype="str")))
    assert result.shape == (0, 0)


def test_all_faults_are_reported_together():
    df = cut(log(["a"]), [])
    with pytest.raises(RequestError) as caught:
        window_counts(df, "kind", "soon", "knd", "user", max_values=0, top=-1)
    asked = [fault.where for fault in caught.value.faults]
    assert asked == ["target", "by", "max_values", "top", "time", "every"]
    assert "did you mean 'kind'?" in str(caught.value)


def test_categories_must_be_of_targets():
    df = cut(log(["a"], size=[1]), [])
    with pytest.raises(RequestError, match="categories = 'knd': expected one of the targets"):
        window_counts(df, "time", "1h", "kind", categories={"knd": ["a"]})
    with pytest.raises(RequestError, match=r"a mapping \{target: list\}"):
        window_counts(df, "time", "1h", ["kind", "size"], categories=["a"])
    with pytest.raises(RequestError, match="leave top or categories out"):
        window_counts(df, "time", "1h", "kind", categories=["a"], top=3)
    with pytest.raises(RequestError, match="target = 'kind': expected a column that is not in by"):
        window_counts(df, "time", "1h", "kind", "kind")
    with pytest.raises(RequestError, match=r"target = \[\]: expected at least one column"):
        window_counts(df, "time", "1h", [])


def test_negative_zero_and_zero_are_one_column():
    assert list(counts(log([-0.0, 0.0, 1.0])).columns) == ["kind_0.0", "kind_1.0"]
