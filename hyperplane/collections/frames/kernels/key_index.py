"""Indexes of the rows of a table by their keys, for joins in place of a hash table of Polars.

Each key has a place: dense whole numbers, as identifiers often are, the difference to the smallest
one, and text the first bits of its hash. An index has the rows in the order of their places. In
CPU seconds, 1 million rows were joined to 2 million by whole numbers in 0.04 instead of 0.43, and
by text of 16 characters in 0.47 instead of 1.4, besides 0.04 and 0.44 for the index, which the
tasks of a process share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

Array = np.ndarray[Any, Any]
#: Maximum places of numbers for each row; receivers of an exchange have each eighth or sixteenth
#: key. A place takes 4 bytes, and a hash table takes 40 to 60 bytes for each row.
_PLACES_PER_ROW, _MIN_PLACES = 16, 1_000
#: Minimum rows for an index of text: the hash table of fewer rows fits into the cache.
_MIN_TEXTS = 100_000
#: Maximum rows in a place of text: each of them is compared with each row of the left side there.
_MAX_TEXTS_IN_PLACE = 16
#: Rows from which a frequent place is found, and its minimum share of them.
_SAMPLE_ROWS, _MIN_SHARE = 1_000, 0.3
#: Maximum rows: the place and the number of a row fit into 63 bits.
_MAX_ROWS = 2**28


@dataclass(frozen=True, eq=False)
class Matches:
    """Rows of both sides with equal keys, in the order of the left and then the right rows."""

    #: None if these are all rows of the left side, each once.
    left: Array | None
    #: -1 for a row of the left side without a match.
    right: Array


@dataclass(frozen=True, eq=False)
class RowOrder:
    """Rows of a table in the order of their places; equal places in the order of the table."""

    rows: Array
    #: The first of ``rows`` of each place, and their number.
    starts: Array

    @classmethod
    def build(cls, places: Array, count: int) -> RowOrder:
        """Return the order of rows with these places, of which there are ``count``.

        One sort of places and row numbers in the same integers took a third of the CPU time of a
        stable sort of the places. The rows of a frequent place, which have an order already, are
        not sorted: of 2 million rows, 60 % of which had one place, that took 0.06 in place of 0.16.
        """
        bits = len(places).bit_length()
        frequent = _find_frequent_place(places)
        if frequent is None:
            added = np.empty(0, np.int32)
            order = places << bits
            order |= np.arange(len(places), dtype=np.int64)
        else:
            is_frequent = places == frequent
            added = np.flatnonzero(is_frequent).astype(np.int32)
            others = np.flatnonzero(~is_frequent)
            order = places[others]
            order <<= bits
            order |= others
            del is_frequent, others  # before the sort, to save memory
        order.sort()
        rows = (order & ((1 << bits) - 1)).astype(np.int32)
        order >>= bits
        starts = np.zeros(count + 1, np.int32)
        if len(order):
            ends = np.append(np.flatnonzero(order[1:] != order[:-1]) + 1, len(order))
            starts[order[ends - 1] + 1] = ends
            np.maximum.accumulate(starts, out=starts)  # places without rows
        if frequent is not None:
            first = starts[frequent]
            rows = np.concatenate([rows[:first], added, rows[first:]])
            starts[frequent + 1 :] += len(added)
        return cls(rows, starts)

    def count(self, places: Array) -> tuple[Array, Array]:
        """Return the first of ``rows`` of each given place, and the number of its rows."""
        first = self.starts[places]
        counts = self.starts[places + 1]
        counts -= first
        return first, counts

    @staticmethod
    def find(first: Array, counts: Array) -> tuple[Array, Array]:
        """Return the number of each given place and its rows' numbers in ``rows``."""
        numbers = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        shifts = np.cumsum(counts, dtype=np.int64)
        shifts -= counts
        np.subtract(first, shifts, out=shifts)
        positions = np.arange(len(numbers), dtype=np.int64)
        positions += np.repeat(shifts, counts)
        return numbers, positions

    def match(self, places: Array, *, keep_unmatched: bool, max_rows: int | None) -> Matches | None:
        """Return the rows of given places; None if they may be more than allowed."""
        first, counts = self.count(places)
        if max_rows is not None and counts.sum() > max_rows:
            return None
        unmatched = np.flatnonzero(counts == 0) if keep_unmatched else np.empty(0, np.int64)
        counts[unmatched] = 1
        first[unmatched] = 0
        if (counts == 1).all():
            numbers, positions = None, first
        else:
            numbers, positions = self.find(first, counts)
        right = self.rows[positions]
        if len(unmatched):
            ends = np.cumsum(counts, dtype=np.int64)
            right[ends[unmatched] - 1] = -1
        return Matches(numbers, right)


@dataclass(frozen=True, eq=False)
class NumberIndex:
    """Index of dense whole numbers; the last two places are those of other keys and of null."""

    first: int
    last: int
    #: Row of each place if all keys are different, -1 without one; else their order.
    rows: Array | RowOrder

    @classmethod
    def build(cls, keys: pl.Series) -> NumberIndex | None:
        """Return the index of the keys of a table; None if they are not dense whole numbers."""
        numbers = _to_whole_numbers(keys)
        if numbers is None or numbers.null_count() > keys.null_count():  # fractions, infinity
            return None
        first, last = numbers.min(), numbers.max()
        if not isinstance(first, int) or not isinstance(last, int):  # all are null
            return None
        if last - first >= max(_MIN_PLACES, _PLACES_PER_ROW * len(keys)):
            return None
        places = _find_places(keys, numbers, first, last)
        rows = np.full(last - first + 3, -1, np.int32)
        rows[places] = np.arange(len(keys), dtype=np.int32)
        if np.count_nonzero(rows >= 0) == len(keys):
            return cls(first, last, rows)
        count = len(rows)
        del rows  # before the order is built, to save memory
        return cls(first, last, RowOrder.build(places, count))

    def estimated_size(self) -> int:
        """Return the bytes in memory."""
        order = self.rows
        parts = [order.rows, order.starts] if isinstance(order, RowOrder) else [order]
        return sum(part.nbytes for part in parts)

    def match(
        self, keys: pl.Series, *, keep_unmatched: bool, max_rows: int | None
    ) -> Matches | None:
        """Return the matches of keys of the same type; None if they may be more than allowed."""
        numbers = _to_whole_numbers(keys)
        if numbers is None:
            raise TypeError(f"keys of type {keys.dtype} have no places")
        places = _find_places(keys, numbers, self.first, self.last)
        if isinstance(self.rows, RowOrder):
            return self.rows.match(places, keep_unmatched=keep_unmatched, max_rows=max_rows)
        rows = self.rows[places]
        if keep_unmatched:
            return Matches(None, rows)
        has_match = rows >= 0
        if has_match.all():
            return Matches(None, rows)
        return Matches(np.flatnonzero(has_match).astype(np.int32), rows[has_match])


@dataclass(frozen=True, eq=False)
class TextIndex:
    """Index of text by its hashes; texts with equal hashes are compared."""

    keys: pl.Series
    order: RowOrder
    #: Hashes of the rows, in the order of their places.
    hashes: Array
    bits: int

    @classmethod
    def build(cls, keys: pl.Series) -> TextIndex | None:
        """Return the index of the keys of a table; None if they are few, or some are frequent."""
        if keys.dtype != pl.String or len(keys) < _MIN_TEXTS:
            return None
        bits = len(keys).bit_length() + 1
        hashes = hash_texts(keys)
        places = (hashes >> np.uint64(64 - bits)).astype(np.int64)
        order = RowOrder.build(places, 1 << bits)
        if np.diff(order.starts).max() > _MAX_TEXTS_IN_PLACE:
            return None
        return cls(keys, order, hashes[order.rows], bits)

    def estimated_size(self) -> int:
        """Return the bytes in memory, without those of the keys."""
        return self.hashes.nbytes + self.order.rows.nbytes + self.order.starts.nbytes

    def match(
        self, keys: pl.Series, *, keep_unmatched: bool, max_rows: int | None
    ) -> Matches | None:
        """Return the matches of texts; None if they may be more than allowed."""
        keys = keys.rechunk()  # texts are gathered from several chunks in twice the time
        hashes = hash_texts(keys)
        places = (hashes >> np.uint64(64 - self.bits)).astype(np.int64)
        first, counts = self.order.count(places)
        if max_rows is not None and counts.sum() > max_rows:
            return None
        left, positions = self.order.find(first, counts)
        is_equal = self.hashes[positions] == hashes[left]
        left, rows = left[is_equal], self.order.rows[positions[is_equal]]
        found = self.keys.gather(pl.Series(rows.view(np.uint32)))  # not converted by Polars
        has_match = _gather_texts(keys, left).eq_missing(found).to_numpy()
        if not has_match.all():
            left, rows = left[has_match], rows[has_match]
        if keep_unmatched:
            left, rows = _add_unmatched(left, rows, len(keys))
        is_each_once = len(left) == len(keys) and bool((left[1:] > left[:-1]).all())
        return Matches(None if is_each_once else left, rows)


def build_index(keys: pl.Series) -> NumberIndex | TextIndex | None:
    """Return the index of the keys of a table; None if a hash table is better."""
    if not 0 < len(keys) <= _MAX_ROWS:
        return None
    return TextIndex.build(keys) if keys.dtype == pl.String else NumberIndex.build(keys)


def _find_frequent_place(places: Array) -> int | None:
    """Return the most frequent place of a sample, if many rows have it; else None."""
    sample = places[:: max(1, len(places) // _SAMPLE_ROWS)]
    values, counts = np.unique(sample, return_counts=True)
    most = counts.argmax()
    return int(values[most]) if counts[most] >= _MIN_SHARE * len(sample) else None


def hash_texts(keys: pl.Series) -> Array:
    """Return the hashes of texts, which are equal in a process; missing texts have that of 0."""
    return keys.hash(0).fill_null(0).to_numpy()


def _gather_texts(keys: pl.Series, rows: Array) -> pl.Series:
    """Return the texts of sorted rows, often all of them."""
    if len(rows) == len(keys) and (rows[1:] > rows[:-1]).all():
        return keys
    return keys.gather(pl.Series(rows.view(np.uint32)))


def _find_places(keys: pl.Series, numbers: pl.Series, first: int, last: int) -> Array:
    """Return the place of each key, which ``numbers`` has as a whole number if it is one."""
    other, null = last - first + 1, last - first + 2
    values = numbers.fill_null(first).to_numpy()
    # Without a sign, differences to keys outside are larger than those to keys inside.
    differences = (values - values.dtype.type(first)).view(np.uint64)
    np.minimum(differences, np.uint64(other), out=differences)
    places: Array = differences.view(np.int64)
    if numbers.null_count():
        places[numbers.is_null().to_numpy()] = other  # fractions
        places[keys.is_null().to_numpy()] = null
    return places


def _add_unmatched(left: Array, right: Array, count: int) -> tuple[Array, Array]:
    """Return the matches, and -1 as match of each of ``count`` left rows without one."""
    counts = np.bincount(left, minlength=count)
    if counts.all():
        return left, right
    kept = np.maximum(counts, 1)
    result = np.full(int(kept.sum()), -1, np.int32)
    result[np.repeat(counts > 0, kept)] = right
    return np.repeat(np.arange(count, dtype=np.int32), kept), result


def _to_whole_numbers(keys: pl.Series) -> pl.Series | None:
    """Return keys as 64-bit integers, null for fractions; None for other types."""
    kind = keys.dtype
    if kind == pl.UInt64:
        return keys
    if (kind.is_integer() and kind not in (pl.Int128, pl.UInt128)) or kind in (
        pl.Date,
        pl.Datetime,
        pl.Duration,
    ):
        return keys.to_physical().cast(pl.Int64)
    if kind in (pl.Float32, pl.Float64):
        numbers = keys.cast(pl.Int64, strict=False)
        is_equal = (numbers.cast(kind) == keys).fill_null(value=False)
        return numbers if is_equal.all() else numbers.set(~is_equal, None)
    return None
