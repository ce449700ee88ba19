"""Shuffled joins with frequent keys, and with several rows of a key on both sides."""

from __future__ import annotations

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pandas_results
import polars as pl
import pytest
from frame_strategies import QUICK, cut
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import combinations, scaled

from hyperplane.collections.frames import (
    exchange_memory,
    frequent_keys,
    heavy_keys,
    small_side,
)
from hyperplane.dataframe import join
from hyperplane.errors import RequestError

PARTS = 8
KEYS = 4_000


@pytest.fixture(params=["polars", "pandas"])
def way(request, monkeypatch):
    """Shuffle both sides, also small ones; with pandas as for types that Polars does not have."""
    choose_way(monkeypatch, request.param)
    return request.param


def choose_way(patch, way):
    patch.setattr(small_side, "MAX_SMALL_SIDE", -1)
    patch.setattr(exchange_memory, "choose_row_partition_count", lambda count, size: count)
    if way == "pandas":
        use_pandas(patch)


def use_pandas(patch):
    for module in ("join", "shuffle_join"):
        name = f"hyperplane.collections.frames.{module}.can_join_tables"
        patch.setattr(name, lambda *args: False)


def make_sides(share, rows=80_000, *, sort=False, copies=1):
    """Return two frames; one key has a share of the rows of the first one."""
    generator = np.random.default_rng(3)
    keys = np.where(generator.random(rows) < share, 17, generator.integers(0, KEYS, rows))
    left = pd.DataFrame({"k": np.sort(keys) if sort else keys, "v": np.arange(rows)})
    right = pd.DataFrame({"k": np.repeat(np.arange(0, KEYS, 2), copies)})
    right.loc[right.k == 16, "k"] = 17
    return left, right.assign(w=np.arange(len(right)))


def select_rows(left, right, how):
    if how in ("semi", "anti"):
        return left[left.k.isin(right.k) == (how == "semi")]
    return left.merge(right.astype({"w": "Int64"}) if how == "left" else right, on="k", how=how)


def compute(result):
    """Return all rows in an order, and the numbers of rows of the partitions."""
    parts = dask.compute(*result.to_delayed())
    rows = pd.concat(parts)
    order = [name for name in ("v", "w") if name in rows.columns]
    return rows.sort_values(order, ignore_index=True), [len(part) for part in parts]


def check_equal(result, left, right, how):
    rows, lengths = compute(result)
    want = select_rows(left, right, how)
    want = want.sort_values([n for n in ("v", "w") if n in want.columns], ignore_index=True)
    pd.testing.assert_frame_equal(rows, want)
    return lengths


def open_sides(left, right, parts=PARTS):
    return (
        dd.from_pandas(left, npartitions=parts, sort=False),
        dd.from_pandas(right, npartitions=max(2, parts // 2), sort=False),
    )


@pytest.mark.parametrize(
    ("how", "method"), combinations(["inner", "left", "semi", "anti"], ["tasks", "disk"])
)
def test_rows_of_a_frequent_key_are_in_all_partitions(how, method, way):
    left, right = make_sides(0.6)
    if how == "anti":
        right = right[right.k != 17]
    with dask.config.set({"dataframe.shuffle.method": method}, scheduler="sync"):
        result = join(*open_sides(left, right), "k", how)
        lengths = check_equal(result, left, right, how)
    # One task would have 60 % of the rows, which is 4.8 times the average.
    assert max(lengths) < 1.25 * sum(lengths) / PARTS


@pytest.mark.parametrize("how", ["inner", "left"])
def test_rows_of_a_frequent_key_with_many_matches_are_spread(how, way):
    left, right = make_sides(0.5, rows=20_000)
    right = pd.concat([right, pd.DataFrame({"k": 17, "w": -np.arange(1, 10)})], ignore_index=True)
    with dask.config.set(scheduler="sync"):
        lengths = check_equal(join(*open_sides(left, right), "k", how), left, right, how)
    assert sum(lengths) > 5 * len(left) or how == "inner"
    assert max(lengths) < 1.25 * sum(lengths) / PARTS


def test_the_larger_side_of_an_inner_join_is_spread(way):
    left, right = make_sides(0.6)
    sides = open_sides(left, right)
    with dask.config.set(scheduler="sync"):
        lengths = check_equal(join(sides[1], sides[0], "k")[["k", "v", "w"]], left, right, "inner")
    assert max(lengths) < 1.25 * sum(lengths) / PARTS


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_sorted_keys_are_not_copied_to_all_partitions(share, way):
    """Each partition has one of some frequent keys: rows are copied once for it, not for all."""
    left, right = make_sides(share, sort=True)
    left["k"] = left["k"] // 400 * 400  # ten keys, one after the other
    copied = []
    module = frequent_keys if way == "polars" else heavy_keys
    copy_rows = module.copy_rows

    def copy_and_count(first, *args):
        result = copy_rows(first, *args)
        copied.append(len(result[0]) if way == "polars" else len(result) - len(first))
        return result

    with pytest.MonkeyPatch.context() as patch, dask.config.set(scheduler="sync"):
        patch.setattr(module, "copy_rows", copy_and_count)
        lengths = check_equal(join(*open_sides(left, right), "k", "left"), left, right, "left")
    assert sum(copied) <= 3 * PARTS
    assert max(lengths) <= 3 * len(left) / PARTS


def test_without_frequent_keys_all_partitions_receive_rows(way):
    left, right = make_sides(0.0)
    with dask.config.set(scheduler="sync"):
        lengths = check_equal(join(*open_sides(left, right), "k", "left"), left, right, "left")
    assert min(lengths) > 0.8 * len(left) / PARTS  # Dask would hash the numbers of partitions


def test_more_receivers_than_senders_get_rows_of_a_frequent_key():
    hashes = pl.Series([5] * 8_000 + list(range(100, 2_100)), dtype=pl.UInt64)
    counts = np.zeros(12)
    for sender in range(3):
        partitions = heavy_keys.spread_rows(hashes, 12, sender, 3)
        counts += np.bincount(partitions.to_numpy(), minlength=12)
    assert counts.max() < 1.1 * counts.mean()


def test_a_column_with_the_name_that_dask_uses_is_refused(monkeypatch):
    use_pandas(monkeypatch)
    left, right = (side.rename(columns={"v": "_partitions"}) for side in make_sides(0.0, 100))
    with pytest.raises(RequestError, match=r"left = a column '_partitions'.*rename"):
        join(*open_sides(left, right, 2), "k")


@st.composite
def repeated(draw, side):
    """Draw rows with few keys of two columns, so that many rows of both sides match."""
    rows = draw(st.integers(0, 25))
    chosen = {
        "k": draw(st.lists(st.sampled_from([1, 2, 3]), min_size=rows, max_size=rows)),
        "t": draw(st.lists(st.sampled_from(["a", "b", None]), min_size=rows, max_size=rows)),
    }
    frame = pd.DataFrame(chosen).astype({"k": "int64", "t": "str"})
    return frame.assign(**{side: np.arange(rows)})


@pytest.mark.parametrize(
    ("spread", "how_joined"), combinations([True, False], ["pandas", "polars"])
)
@settings(QUICK, max_examples=scaled(8, 150))
@given(
    left=repeated("v"), right=repeated("w"), cuts=st.lists(st.integers(0, 25), max_size=4),
    how=st.sampled_from(["inner", "left", "semi", "anti"]), swap=st.booleans(),
)  # fmt: skip
def test_many_to_many_joins_equal_pandas(left, right, cuts, how, swap, spread, how_joined):
    keys = ["k", "t"]
    left_cuts = [min(place, len(left)) for place in cuts]
    sides = [cut(left, left_cuts), cut(right, [len(right) // 3, len(right) // 2])]
    frames = [left, right]
    if swap:
        sides, frames = sides[::-1], frames[::-1]
    with pytest.MonkeyPatch.context() as patch, dask.config.set(scheduler="sync"):
        choose_way(patch, how_joined)
        if spread:  # the rows of each key
            for module in (frequent_keys, heavy_keys):
                patch.setattr(module, "_MIN_ROWS", 0)
                patch.setattr(module, "_MIN_SHARE", 0.0)
        ours = join(*sides, keys, how).compute()
    if how in ("inner", "left"):
        want = frames[0].merge(frames[1], on=keys, how=how)
    else:
        matches = frames[0].merge(
            frames[1][keys].drop_duplicates(), on=keys, how="left", indicator=True
        )
        has_match = (matches["_merge"] == "both").to_numpy()
        want = frames[0][has_match if how == "semi" else ~has_match]
    assert pandas_results.rows_of(ours) == pandas_results.rows_of(want)
