"""sort_values against pandas."""

from __future__ import annotations

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pandas_results
import pytest
from frame_strategies import CATEGORIES, KINDS, QUICK, cut, frames, in_partitions, open_files
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import combinations, scaled

from hyperplane.dataframe import read, sort_values
from hyperplane.errors import RequestError

SORTABLE = sorted(set(KINDS) - set(CATEGORIES))
INTO = st.sampled_from([None, 1, 2, 5])
WAYS = st.sampled_from([True, False, [True, False], [False, True]])


@pytest.fixture(scope="module")
def files():
    with open_files(keep_objects=True) as opened:
        yield opened


@settings(QUICK, max_examples=scaled(8, 80))
@given(data=st.data())
def test_rows_have_the_order_of_pandas(data, files):
    by = data.draw(st.sampled_from([["v0"], ["v0", "v1"]]), "by")
    # By several columns pandas sorts infinite numbers like missing values.
    kinds = SORTABLE if len(by) == 1 else [kind for kind in SORTABLE if kind != "infinite"]
    frame = data.draw(frames(kinds=kinds, values=2), "frame")
    frame["place"] = np.arange(len(frame))
    ways = data.draw(WAYS, "ways")
    if isinstance(ways, list):
        ways = ways[: len(by)]
    at = data.draw(st.sampled_from(["first", "last"]), "na_position")
    df = data.draw(in_partitions(frame, files), "df")
    want = df.compute().sort_values(
        by, ascending=ways, na_position=at, kind="stable", ignore_index=True
    )
    ordered = sort_values(
        df, by, ascending=ways, na_position=at, split_out=data.draw(INTO, "into")
    ).compute()
    pandas_results.same_frame(ordered.reset_index(drop=True), want)


@pytest.mark.parametrize(
    ("partitions", "ascending"), combinations([2, 40, scaled(90, 150)], [True, False])
)
def test_partitions_are_in_order_and_of_similar_size(partitions, ascending):
    numbers = np.random.default_rng(1).permutation(30_000)
    df = dd.from_pandas(pd.DataFrame({"n": numbers, "m": -numbers}), npartitions=partitions)
    parts = dask.compute(
        *sort_values(df, "n", ascending=ascending, split_out=10).to_delayed(), scheduler="sync"
    )
    sorted_numbers = np.concatenate([part.n.to_numpy() for part in parts])
    assert (sorted_numbers == (np.arange(30_000) if ascending else np.arange(30_000)[::-1])).all()
    assert (np.concatenate([part.m.to_numpy() for part in parts]) == -sorted_numbers).all()
    assert max(map(len, parts)) < 2 * 3000
    assert min(map(len, parts)) > 3000 / 2


def test_the_call_itself_reads_no_rows(tmp_path):
    pd.DataFrame({"n": [3, 1, 2]}).to_parquet(tmp_path / "a.parquet")
    df = read(tmp_path)
    result = sort_values(df, "n")
    assert result.compute(scheduler="sync").n.to_list() == [1, 2, 3]
    (tmp_path / "a.parquet").unlink()
    again = sort_values(df, "n", ascending=False)  # would fail if the call read rows
    assert list(again.columns) == ["n"]


def test_a_value_of_most_rows_is_sorted_as_in_pandas():
    frame = pd.DataFrame({"n": [5] * 900 + list(range(100)), "row": range(1000)})
    result = sort_values(cut(frame, [300, 600]), "n", split_out=4).compute(scheduler="sync")
    want = frame.sort_values("n", kind="stable", ignore_index=True)
    pandas_results.same_frame(result.reset_index(drop=True), want)


def test_missing_values_alone_and_no_rows_are_sorted():
    frame = pd.DataFrame({"n": [np.nan] * 3, "row": [0, 1, 2]})
    result = sort_values(cut(frame, [1]), "n", split_out=3).compute(scheduler="sync")
    assert result.row.to_list() == [0, 1, 2]
    empty = sort_values(cut(frame.iloc[:0], []), "n", split_out=2).compute(scheduler="sync")
    assert empty.empty
    assert list(empty.columns) == ["n", "row"]


def test_all_faults_are_reported_together():
    frame = pd.DataFrame({"user": [1], "kind": pd.Categorical(["a"])})
    with pytest.raises(RequestError) as caught:
        sort_values(
            cut(frame, []), ["usr", "kind"], ascending=[True], na_position="mid", split_out=0
        )
    asked = [fault.where for fault in caught.value.faults]
    assert asked == ["by", "split_out", "ascending", "na_position", "by"]
    assert "did you mean 'user'" in str(caught.value)
    with pytest.raises(RequestError, match="at least one column"):
        sort_values(cut(frame, []), [])
