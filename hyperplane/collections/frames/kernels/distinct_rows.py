"""The first or last row of each distinct key, found with a table of hashes and row numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import polars as pl

Array = np.ndarray[Any, Any]
Keep = Literal["first", "last"]
#: Minimum rows of a table: the hash table of fewer rows fits into the cache.
_MIN_ROWS = 50_000
#: Types other than numbers whose values are compared.
_COMPARED_TYPES = (pl.Boolean, pl.String, pl.Date, pl.Datetime, pl.Duration)
#: Rows that Polars compares when so few are left, or after so many rounds.
_FEW_ROWS, _MAX_ROUNDS = 5_000, 12
#: Odd factor of the hashes of the next round: 2**64 divided by the golden ratio.
_FACTOR = np.uint64(0x9E3779B97F4A7C15)

#: First rows of a partition, and the share of distinct ones from which it is read into memory.
_FIRST_ROWS, _MIN_FIRST_SHARE = 20_000, 0.5
#: One of so many keys is counted to estimate the distinct rows of a partition, and their share from
#: which all rows are kept: repeats are also removed when partitions are combined.
_KEYS_PER_SAMPLE, _MIN_SHARE = 32, 0.8


def read_distinct_rows(rows: pl.LazyFrame, keys: Sequence[str], keep: Keep) -> pl.DataFrame | None:
    """Return the distinct rows of a partition, or all of them if few rows are repeated.

    None if Polars takes less time, by the types and the first rows.
    """
    first = rows.head(_FIRST_ROWS).collect()
    if first.height < _FIRST_ROWS or not _can_compare(first, keys):
        return None
    if first.n_unique(keys) < _MIN_FIRST_SHARE * first.height:
        return None
    table = rows.collect()
    hashes = _hash([table.get_column(key) for key in keys])
    sample = hashes[hashes % np.uint64(_KEYS_PER_SAMPLE) == 0]
    if len(np.unique(sample)) >= _MIN_SHARE * len(sample):
        return table
    return table.filter(find_distinct_rows(table, keys, keep, hashes))


def can_find_distinct_rows(table: pl.DataFrame, keys: Sequence[str]) -> bool:
    """Return whether :func:`find_distinct_rows` takes less time than Polars.

    Most rows of the table should be distinct. With text, Polars took 1.5 to 2 times as long.
    """
    return _MIN_ROWS <= table.height < 2**32 and _can_compare(table, keys)


def _can_compare(table: pl.DataFrame, keys: Sequence[str]) -> bool:
    """Return whether keys have text, and no types that cannot be compared or hashed."""
    kinds: list[Any] = [table.schema[key] for key in keys]
    return pl.String in kinds and all(
        kind.is_integer() or kind.is_float() or kind in _COMPARED_TYPES for kind in kinds
    )


def find_distinct_rows(
    table: pl.DataFrame, keys: Sequence[str], keep: Keep, hashes: Array | None = None
) -> pl.Series:
    """Return a mask of the first or last row of each distinct key.

    The first bits of a row's hash are its place in a table, which has the number of the first or
    last row of each place. Rows with the hash of that row are its repeats. The others, whose place
    has a row of another key, are put into a smaller table in the next round. At the end each repeat
    is compared with its row, because different keys may have the same hash; those that differ, and
    the last few rows, are compared by Polars. ``hashes`` are those of ``_hash``; they are changed.
    """
    columns = [table.get_column(key).rechunk() for key in keys]  # gathers from it are faster
    hashes = _hash(columns) if hashes is None else hashes
    count = len(hashes)
    others = np.arange(count, dtype=np.uint32)  # the row of which each row is a repeat, or itself
    rows: Array = others.copy()  # those without a row in ``others``
    for _ in range(_MAX_ROUNDS):
        if len(rows) <= _FEW_ROWS:
            break
        found, is_repeat = _find_repeats(hashes, keep)
        others[rows[is_repeat]] = rows[found[is_repeat]]
        is_left = ~is_repeat
        rows, hashes = rows[is_left], hashes[is_left]
        hashes *= _FACTOR
    rows = np.concatenate([rows, _find_different(columns, others)])
    is_kept = np.zeros(count, bool)
    is_kept[others] = True
    is_kept[rows] = False
    if len(rows):
        rows.sort()
        left = pl.DataFrame([column.gather(rows) for column in columns])
        names = left.columns
        kept = left.with_row_index("").unique(names, keep=keep).get_column("")
        is_kept[rows[kept.to_numpy()]] = True
    return pl.Series(is_kept)


def _hash(columns: Sequence[pl.Series]) -> Array:
    """Return a hash of each row, in an array that may be changed; missing values are equal."""
    hashes = np.zeros(len(columns[0]), np.uint64)
    for number, column in enumerate(columns):
        hashes *= _FACTOR
        hashes ^= column.hash(number).fill_null(number).to_numpy()
    return hashes


def _find_repeats(hashes: Array, keep: Keep) -> tuple[Array, Array]:
    """Return the row in the place of each row, and whether that has the same hash.

    A value of the table has the number of a row in its last bits, and otherwise those of the hash.
    """
    count = len(hashes)
    number_bits = count.bit_length()
    place_bits = min(number_bits + 1, 63)
    places = (hashes >> np.uint64(64 - place_bits)).view(np.int64)
    last_bits = np.uint64((1 << number_bits) - 1)
    values = hashes & ~last_bits
    values |= np.arange(count, dtype=np.uint64)
    table = np.empty(1 << place_bits, np.uint64)
    if keep == "last":  # NumPy assigns the last of several values with the same place
        table[places] = values
    else:
        table[places[::-1]] = values[::-1]
    values = table[places]
    is_repeat = (values ^ hashes) <= last_bits
    values &= last_bits
    return values, is_repeat


def _find_different(columns: Sequence[pl.Series], others: Array) -> Array:
    """Return the rows whose key differs from that of the other row."""
    rows = np.flatnonzero(others != np.arange(len(others), dtype=np.uint32)).astype(np.uint32)
    mine, theirs = pl.Series(rows), pl.Series(others[rows])
    is_equal = np.ones(len(rows), bool)
    for column in columns:
        is_equal &= column.gather(mine).eq_missing(column.gather(theirs)).to_numpy()
    return rows[~is_equal]
