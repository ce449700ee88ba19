"""top_n_per_group against pandas."""

from __future__ import annotations

import datetime

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pandas_results
import pytest
from frame_strategies import CATEGORIES, KINDS, QUICK, cut, frames, in_partitions, open_files
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import scaled

from hyperplane.collections.frames.top_n_per_group import Ranking
from hyperplane.dataframe import top_n_per_group
from hyperplane.errors import RequestError


@pytest.fixture(scope="module")
def files():
    with open_files(keep_objects=True) as opened:
        yield opened


@settings(QUICK, max_examples=scaled(7, 60))
@given(data=st.data())
def test_rows_equal_pandas(data, files):
    by = data.draw(st.sampled_from([["k0"], ["k0", "k1"]]), "by")
    kinds = [kind for kind in KINDS if kind not in CATEGORIES]
    frame = data.draw(frames(kinds=kinds, keys=len(by)), "frame").reset_index(drop=True)
    frame["row"] = np.arange(len(frame))
    n, ascending = data.draw(st.integers(1, 4), "n"), data.draw(st.booleans(), "ascending")
    df = data.draw(in_partitions(frame, files), "df")
    want = pandas_results.top_n(df.compute(), by, "v0", n, ascending=ascending)
    into = data.draw(st.sampled_from([1, 2, 3, None]), "split_out")
    result = top_n_per_group(df, by, "v0", n, ascending=ascending, split_out=into).compute()
    if into != 1:
        order = [True] * len(by) + [ascending]
        result = result.sort_values([*by, "v0"], ascending=order, kind="stable", ignore_index=True)
    pandas_results.same_frame(result, want)


def delays(n=300):
    rng = np.random.default_rng(4)
    return pd.DataFrame(
        {"carrier": rng.choice(list("ABCD"), n), "delay": rng.integers(0, 20, n), "row": range(n)}
    )


@pytest.mark.parametrize("partitions", [1, 7, 40])
def test_earlier_rows_come_first_among_equal_values(partitions):
    frame = delays()
    df = dd.from_pandas(frame, npartitions=partitions, sort=False)
    result = top_n_per_group(df, "carrier", "delay", 5).compute(scheduler="sync")
    want = pandas_results.top_n(df.compute(scheduler="sync"), ["carrier"], "delay", 5)
    pd.testing.assert_frame_equal(result, want)
    by_group = frame.groupby("carrier")[["delay", "row"]]
    largest = by_group.apply(lambda group: group.nlargest(5, "delay"))
    assert sorted(result.row) == sorted(largest.row)


def test_several_partitions_of_the_result_hold_each_group_once():
    frame = delays().assign(carrier=np.arange(300) % 31)
    result = top_n_per_group(cut(frame, [100, 200]), "carrier", "delay", 2, split_out=4)
    parts = [part.carrier.unique() for part in dask.compute(*result.to_delayed(), scheduler="sync")]
    assert sorted(np.concatenate(parts)) == list(range(31))
    assert len(parts) == 4


@pytest.mark.parametrize(
    "kinds", [("int64", "float64"), ("str", "datetime64[us]"), ("Int8", "str")]
)
@pytest.mark.parametrize("ascending", [True, False])
def test_polars_and_pandas_sort_the_rows_alike(kinds, ascending, monkeypatch):
    rng = np.random.default_rng(6)
    group, value = (pd.Series(rng.integers(-9, 9, 400)).astype(kind) for kind in kinds)
    frame = pd.DataFrame({"k": group, "v": value, "row": range(400)})
    frame.loc[rng.random(400) < 0.1, "v"] = None
    if kinds[1] == "float64":
        frame.loc[rng.random(400) < 0.2, "v"] = -0.0
    df = cut(frame, [100, 300])

    def compute():
        top = top_n_per_group(df, "k", "v", 30, ascending=ascending, split_out=None)
        return dask.compute(*top.to_delayed(), scheduler="sync")

    parts = compute()
    monkeypatch.setattr(Ranking, "is_sorted_by_polars", False)
    for part, want in zip(parts, compute(), strict=True):
        pd.testing.assert_frame_equal(part, want)
    assert len(parts) > 1


def test_missing_values_come_last_in_both_directions():
    frame = pd.DataFrame({"k": [1, 1, 1], "v": [np.nan, 2.0, 1.0], "row": range(3)})
    for ascending, rows in ((True, [2, 1, 0]), (False, [1, 2, 0])):
        result = top_n_per_group(cut(frame, [1, 2]), "k", "v", 3, ascending=ascending)
        assert result.compute(scheduler="sync").row.to_list() == rows


def test_other_columns_may_hold_any_kind_of_object():
    frame = pd.DataFrame({"k": [1, 2], "v": [1, 2]})
    days = [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)]
    frame["day"] = pd.Series(days, dtype=object)
    frame["tags"] = pd.Series([["a"], ["b", "c"]], dtype=object)
    result = top_n_per_group(cut(frame, [1]), "k", "v", 1).compute(scheduler="sync")
    assert result.day.to_list() == days
    assert result.tags.to_list() == [["a"], ["b", "c"]]


def test_all_faults_are_reported_together():
    df = cut(delays(5), [])
    with pytest.raises(RequestError) as caught:
        top_n_per_group(df, "carier", "dlay", 0, split_out=1.5)
    asked = [fault.where for fault in caught.value.faults]
    assert asked == ["by", "column", "n", "split_out"]
    assert "did you mean 'carrier'" in str(caught.value)
    with pytest.raises(RequestError, match="a column that is not in by"):
        top_n_per_group(df, "delay", "delay", 1)
    with pytest.raises(RequestError, match="by its codes"):
        top_n_per_group(cut(delays(5).astype({"carrier": "category"}), []), "row", "carrier", 1)
    with pytest.raises(RequestError, match="at least one column"):
        top_n_per_group(df, [], "delay", 1)
