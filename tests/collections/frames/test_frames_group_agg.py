"""Group-bys and counts of values against pandas."""

from __future__ import annotations

import datetime

import dask
import numpy as np
import pandas as pd
import pandas_results
import pytest
from frame_strategies import QUICK, aggregations, cut, frames, in_partitions, open_files
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scale import scaled

from hyperplane.dataframe import group_agg, value_counts
from hyperplane.errors import DataError, RequestError


@pytest.fixture(scope="module")
def files():
    with open_files(keep_objects=True) as opened:
        yield opened


@settings(QUICK, max_examples=scaled(6, 40))
@given(data=st.data())
def test_groups_equal_pandas(data, files):
    by = data.draw(st.sampled_from([["k0"], ["k0", "k1"]]), "by")
    frame = data.draw(frames(keys=len(by), values=2), "frame")
    agg = data.draw(aggregations(frame), "agg")
    df = data.draw(in_partitions(frame, files), "df")
    want = pandas_results.group_agg(df.compute(), by, agg)
    assume(want is not None)
    into = data.draw(st.integers(1, 3), "split_out")
    result = group_agg(df, by[0] if len(by) == 1 else by, agg, split_out=into).compute()
    pandas_results.same_frame(result.sort_index() if into > 1 else result, want)


@settings(QUICK, max_examples=scaled(6, 40))
@given(data=st.data())
def test_counts_of_values_equal_pandas(data, files):
    by = data.draw(st.sampled_from([["k0"], ["k0", "k1"]]), "by")
    df = data.draw(in_partitions(data.draw(frames(keys=len(by)), "frame"), files), "df")
    held = df.compute()
    result = value_counts(df, by).compute()
    of_objects = any(
        held[name].dtype == object for name in by
    )  # pandas may not infer the type of this index
    pd.testing.assert_series_equal(
        result,
        pandas_results.value_counts(held, by),
        check_index_type="equiv" if not of_objects else False,
    )


def sales():
    return pd.DataFrame(
        {
            "city": ["Rome", "Oslo", "Rome", None, "Oslo", "Rome"],
            "buyer": [1, 2, 3, 3, 2, 1],
            "price": [1.0, np.nan, 2.5, 4.0, 8.0, 2.5],
        }
    )


def test_a_column_may_be_key_and_value():
    df = cut(sales(), [2, 4])
    agg = {"city": ["count", "nunique"], "price": ["sum", "median"]}
    result = group_agg(df, "city", agg).compute(scheduler="sync")
    pandas_results.same_frame(result, pandas_results.group_agg(sales(), "city", agg))


def test_functions_may_be_callables_of_these_names():
    df = cut(sales(), [2, 4])
    result = group_agg(df, "city", {"buyer": [np.max, sum], "price": pd.Series.nunique})
    assert list(result.columns) == [("buyer", "max"), ("buyer", "sum"), ("price", "nunique")]
    assert result.compute(scheduler="sync").loc["Rome"].to_list() == [3, 5, 2]


def test_negative_zero_and_zero_are_one_key():
    frame = pd.DataFrame({"k": [0.0, -0.0, 0.0], "v": [1, 2, 3]})
    for into in (1, 2):
        result = group_agg(cut(frame, [1, 2]), "k", {"v": ["sum", "nunique"]}, split_out=into)
        assert result.compute(scheduler="sync").to_numpy().tolist() == [[6, 3]]


def test_zeros_of_both_signs_are_one_value():
    frame = pd.DataFrame({"k": [1, 1, 1], "v": [0.0, -0.0, 0.0]})
    result = group_agg(cut(frame, [1, 2]), "k", {"v": "nunique"}).compute(scheduler="sync")
    assert result.v.to_list() == [1]


def test_sums_far_from_zero_keep_their_digits():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"k": np.arange(4000) % 3, "v": 1e9 + rng.normal(size=4000)})
    agg = {"v": ["var", "std", "mean", "median"]}
    result = group_agg(cut(frame, range(100, 4000, 100)), "k", agg).compute(scheduler="sync")
    want = pandas_results.group_agg(frame, "k", agg)
    np.testing.assert_allclose(result, want, rtol=1e-6)


def test_keys_that_are_date_objects_stay_dates():
    dates = [datetime.date(2024, 1, 2), datetime.date(2024, 1, 1)] * 2
    frame = pd.DataFrame({"day": pd.Series(dates, dtype=object), "v": [1, 2, 3, 4]})
    with dask.config.set({"dataframe.convert-string": True}):
        result = group_agg(cut(frame, [1]), "day", {"v": "sum"}).compute(scheduler="sync")
    assert result.index.to_list() == sorted(set(dates))


def test_values_that_are_date_objects_stay_dates():
    frame = pd.DataFrame({"k": [1], "v": pd.Series([datetime.date(2024, 1, 1)], dtype=object)})
    with dask.config.set({"dataframe.convert-string": True}):
        result = group_agg(cut(frame, []), "k", {"v": "first"}).compute(scheduler="sync")
    assert result.v.to_list() == [datetime.date(2024, 1, 1)]


def test_a_result_in_several_partitions_equals_pandas():
    frame = pd.DataFrame({"k": np.arange(3000) % 997, "v": np.arange(3000)})
    result = group_agg(
        cut(frame, range(100, 3000, 100)), "k", {"v": ["median", "sum"]}, split_out=5
    )
    assert result.npartitions == 5
    whole = result.compute(scheduler="sync")
    assert whole.index.is_unique
    pandas_results.same_frame(
        whole.sort_index(), pandas_results.group_agg(frame, "k", {"v": ["median", "sum"]})
    )


def test_normalized_counts_are_fractions():
    frame = sales()
    result = value_counts(cut(frame, [2]), "city", normalize=True).compute(scheduler="sync")
    want = frame.city.value_counts(normalize=True)
    pd.testing.assert_series_equal(
        result, want.sort_index().sort_values(ascending=False), rtol=1e-12
    )
    nullable = cut(frame.astype({"buyer": "Int64"}), [2])
    assert value_counts(nullable, "buyer", normalize=True).dtype == "Float64"


def test_all_faults_are_reported_together():
    df = cut(sales(), [])
    with pytest.raises(RequestError) as caught:
        group_agg(df, "town", {"city": "mean", "prise": "sum", "price": "mode"}, split_out=0)
    asked = [fault.where for fault in caught.value.faults]
    assert asked == ["by", "split_out", "agg['city']", "agg column", "agg['price']"]
    assert "did you mean 'price'?" in str(caught.value)
    with pytest.raises(RequestError, match="at least one column"):
        group_agg(df, [], {"price": "sum"})
    with pytest.raises(RequestError, match="did you mean 'city'"):
        value_counts(df, ["cty", "buyr"])
    with pytest.raises(RequestError, match="a mapping such as"):
        group_agg(df, "city", ["sum"])
    with pytest.raises(RequestError, match="at least one function"):
        group_agg(df, "city", {"price": []})


def test_a_column_of_several_kinds_is_named():
    frame = pd.DataFrame({"k": [1, 1, 2], "v": pd.Series([1, "a", 2.5], dtype=object)})
    with pytest.raises(DataError, match="column 'v': holds values of different kinds") as caught:
        group_agg(cut(frame, []), "k", {"v": "count"}).compute(scheduler="sync")
    assert caught.value.column == "v"
