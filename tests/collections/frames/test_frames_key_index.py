"""Joins by an index of keys have the rows of Polars' joins, in the order of pandas'."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from hyperplane.collections.frames import joined_partition
from hyperplane.collections.frames.join_kinds import HOWS
from hyperplane.collections.frames.kernels import key_index
from hyperplane.collections.frames.kernels.indexed_table import IndexedTable

DRAW = np.random.default_rng(5)
KEYS: dict[str, tuple[Any, pl.DataType]] = {
    "unique": ([*DRAW.permutation(500).tolist(), None], pl.Int64()),
    "repeated": ([None, *DRAW.integers(0, 200, 500).tolist(), None], pl.Int32()),
    "beyond 16 bits": ([*range(0, 100_000, 9), *range(0, 100_000, 90)], pl.UInt32()),
    "one frequent": ([*range(300), *[7] * 700, None, 7], pl.Int64()),
    "wide": ([*range(0, 16_000, 15), 3, 3], pl.Int64()),
    "largest": (list(range(2**63 - 50, 2**63 - 1)), pl.Int64()),
    "smallest": (list(range(-(2**63), 50 - 2**63)), pl.Int64()),
    "unsigned": ([*range(2**64 - 60, 2**64), None], pl.UInt64()),
    "floats": ([*map(float, range(-20, 90)), None, None], pl.Float64()),
    "short floats": ([*map(float, range(-20, 90))], pl.Float32()),
    "days": (list(range(20_000, 20_300)), pl.Date()),
    "ticks": (list(range(10**15, 10**15 + 300)), pl.Datetime("us", "Europe/Oslo")),
    "text": ([f"key {number % 400}" for number in range(500)] + [None], pl.String()),
}


def _make_left(keys: pl.Series) -> pl.DataFrame:
    """Return a table with the keys twice, in another order, and with keys that are not there."""
    drawn = keys.gather(pl.Series(DRAW.integers(0, len(keys), 3 * len(keys))))
    others = pl.Series([None], dtype=keys.dtype)
    if keys.dtype.is_float():
        more = pl.Series([0.5, np.inf, -np.inf, np.nan, 1e300, -0.0], dtype=pl.Float64)
        others = pl.concat([others, more.cast(keys.dtype)])
    elif keys.dtype.is_integer():
        bounds = pl.select(first=keys.dtype.min(), last=keys.dtype.max()).row(0)  # type: ignore[attr-defined]
        others = pl.concat([others, pl.Series(bounds, dtype=keys.dtype)])
    elif keys.dtype == pl.String:
        others = pl.Series([None, "", "key"])
    values = pl.concat([drawn, others]).alias("key")
    return pl.DataFrame([values]).with_row_index("number")


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("name", KEYS)
def test_rows_and_order_are_those_of_hash_joins(
    name: str, how: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_index, "_MIN_TEXTS", 2)
    values, kind = KEYS[name]
    keys = pl.Series("key", values, dtype=None if kind.is_temporal() else kind).cast(kind)
    if isinstance(kind, pl.Float32):
        keys = keys.cast(pl.Float32)
    half = len(keys) // 2
    right = pl.DataFrame([keys, keys.alias("same")]).with_row_index("row")
    right = pl.concat([right[:half], right[half:]], rechunk=False)
    indexed = IndexedTable.build(right, ["key"])
    assert indexed.index is not None
    left = _make_left(keys)
    assert indexed.has_index_for(left.lazy())
    joined = indexed.join(left, how)
    wanted = left.join(right, on="key", how=how, nulls_equal=True, maintain_order="left_right")
    assert joined is not None
    assert_frame_equal(joined, wanted)


def test_rows_with_equal_places_are_in_order_also_in_the_largest_places() -> None:
    largest = 16 * 1_000
    places = DRAW.integers(0, largest + 1, 1_000)
    places[::7] = largest
    order = key_index.RowOrder.build(places, largest + 1)
    np.testing.assert_array_equal(order.rows, np.argsort(places, kind="stable"))
    wanted = np.concatenate([[0], np.cumsum(np.bincount(places, minlength=largest + 1))])
    np.testing.assert_array_equal(order.starts, wanted)


@pytest.mark.parametrize("kind", [pl.Int64(), pl.UInt64(), pl.Int8(), pl.Float64()])
def test_keys_on_both_sides_of_an_index_have_no_match(kind: Any) -> None:
    first, last = (0.0, 9.0) if kind.is_float() else (40, 49)
    right = pl.DataFrame({"key": pl.Series([first, last, None], dtype=kind), "value": [1, 2, 3]})
    bounds = [-1e300, 1e300] if kind.is_float() else pl.select(a=kind.min(), b=kind.max()).row(0)
    outside = [first - 1, last + 1, last + 2, last + 3, *bounds]
    left = pl.DataFrame({"key": pl.Series([*outside, first, None, last], dtype=kind)})
    joined = IndexedTable.build(right, ["key"]).join(left, "left")
    assert joined is not None
    assert joined["value"].to_list() == [None] * len(outside) + [1, 3, 2]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("keys", [[1, 2, 3], [1, 1, 3]])
def test_a_left_side_without_rows_is_joined(keys: list[int], how: Any) -> None:
    right = pl.DataFrame({"key": keys, "value": keys})
    left = right.head(0).select("key", other="value")
    joined = IndexedTable.build(right, ["key"]).join(left, how)
    assert joined is not None
    wanted = left.join(right, on="key", how=how)
    assert_frame_equal(joined, wanted)


@pytest.mark.parametrize("name", ["repeated", "text"])
def test_joins_that_may_repeat_rows_are_limited(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "_MIN_TEXTS", 2)
    values, kind = KEYS[name]
    right = pl.DataFrame({"key": pl.Series(values, dtype=kind)})
    indexed = IndexedTable.build(right, ["key"])
    assert indexed.join(right, "inner", max_rows=right.height) is None
    joined = indexed.join(right, "inner", max_rows=100 * right.height)
    assert joined is not None
    assert joined.height > right.height


@pytest.mark.parametrize(
    "keys",
    [
        pl.Series([0, 10**9]),
        pl.Series([1.0, 2.5]),
        pl.Series([1.0, float("nan")]),
        pl.Series([1.0, float("inf")]),
        pl.Series([None, None], dtype=pl.Int64),
        pl.Series([], dtype=pl.Int64),
        pl.Series([True, False]),
        pl.Series(["a", "b"]),
        pl.Series(["a"] * 100_000),
    ],
)
def test_other_keys_have_no_index(keys: pl.Series) -> None:
    assert IndexedTable.build(keys.alias("key").to_frame(), ["key"]).index is None


def test_different_texts_with_equal_hashes_are_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "_MIN_TEXTS", 2)
    monkeypatch.setattr(key_index, "hash_texts", lambda keys: np.zeros(len(keys), np.uint64))
    right = pl.DataFrame({"key": ["a", "b", None], "value": [1, 2, 3]})
    joined = IndexedTable.build(right, ["key"]).join(
        pl.DataFrame({"key": ["b", None, "c"]}), "left"
    )
    assert joined is not None
    assert joined.rows() == [("b", 2), (None, 3), ("c", None)]


@pytest.mark.parametrize("share", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("frequent", [0, 41, 99])
def test_rows_of_frequent_places_have_the_order_of_a_stable_sort(
    share: float, frequent: int
) -> None:
    places = DRAW.integers(0, 100, 3_000)
    places[DRAW.random(len(places)) < share] = frequent
    assert key_index._find_frequent_place(places) == (frequent if share else None)
    order = key_index.RowOrder.build(places.copy(), 102)
    assert order.rows.tolist() == np.argsort(places, kind="stable").tolist()
    assert order.starts.tolist() == np.searchsorted(np.sort(places), np.arange(103)).tolist()


@pytest.mark.parametrize("name", ["repeated", "smallest", "unsigned", "days", "ticks"])
def test_the_range_of_keys_is_that_of_the_index(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values, kind = KEYS[name]
    keys = pl.Series("key", values, dtype=None if kind.is_temporal() else kind).cast(kind)
    table = IndexedTable.build(pl.DataFrame([keys]), ["key"])
    assert table.index is not None
    want = joined_partition._make_bounds_filter("key", IndexedTable(table.table, "key", None))
    assert want is not None
    with monkeypatch.context() as patch:
        patch.setattr(pl.Series, "min", None)  # would read all keys for each partition
        found = joined_partition._make_bounds_filter("key", table)
    assert found is not None
    assert str(found) == str(want)
    assert table.table.filter(found).height == len(keys)
