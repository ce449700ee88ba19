"""Sorted rows: their positions, and ranges of similar size from samples of keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from hyperplane.collections.frames.kernels.concatenate import concat_tables

#: Column of positions within a partition, and of the numbers of partitions.
POSITION, PARTITION = "__position__", "__partition__"
#: Maximum rows that are sampled from a partition.
_SAMPLE_SIZE = 2048
_ENTRY = "__entry__"
#: Column of counts; ``len``, the default of Polars, may be the name of a column that is sorted by.
_COUNT = "__n__"


@dataclass(frozen=True)
class SortKeys:
    """Columns that are sorted by, and their directions."""

    #: Columns, the most important first.
    by: tuple[str, ...]
    #: Whether each column is sorted in descending order.
    descending: tuple[bool, ...]
    nulls_last: bool
    #: Whether all rows with one value of the first column are in one range.
    whole: bool


def sample_keys(
    frame: pl.LazyFrame, keys: Sequence[str], partition: int, *, by_value: bool = False
) -> tuple[pl.DataFrame, int]:
    """Return a random sample of keys with their positions, and the number of rows.

    Only rows that have the first key count. With ``by_value``, the keys of the sample do not depend
    on the order of the rows.
    """
    rows = frame.select(keys).with_row_index(POSITION).drop_nulls(keys[0]).collect()
    count = rows.height
    if by_value:
        rows = rows.sort(keys)
    if count > _SAMPLE_SIZE:
        # Random positions, since adjacent values are often similar. A task that is computed again
        # returns the same values. Each partition has its own positions: with the same in all of
        # them, the samples of periodic values were equal, and the largest range had 1.8 times the
        # rows of the smallest.
        random = np.random.default_rng(partition)
        rows = rows[random.integers(0, count, _SAMPLE_SIZE)]
    number = pl.lit(partition, pl.UInt32).alias(PARTITION)
    return rows.select(*keys, number, POSITION), count


def choose_split_rows(
    samples: Sequence[tuple[pl.DataFrame, int]], keys: SortKeys, into: int
) -> pl.DataFrame | None:
    """Return keys that split all rows into ``into`` ranges of similar size, in their order.

    Fewer if values are equal and their rows must be in one range; None if all samples are empty.
    """
    positions = [number for number, (rows, _) in enumerate(samples) if rows.height]
    nonempty = [samples[number] for number in positions]
    if not nonempty:
        return None
    weights = [np.full(rows.height, count / rows.height) for rows, count in nonempty]
    table = concat_tables([rows for rows, _ in nonempty], positions)
    sampled = [key for key in keys.by if key in table.columns]
    table = table.with_columns(pl.Series("__weight__", np.concatenate(weights)))
    table = table.sort(
        [*sampled, PARTITION, POSITION],
        descending=[*keys.descending[: len(sampled)], False, False],
        nulls_last=keys.nulls_last,
    )
    share = np.cumsum(table.get_column("__weight__").to_numpy())
    quantiles = np.searchsorted(share / share[-1], np.arange(1, into) / into)
    chosen = table.drop("__weight__")[np.unique(quantiles.clip(0, table.height - 1))]
    if keys.whole:
        return chosen.unique(keys.by[0], keep="first", maintain_order=True)
    return chosen.unique(keep="first", maintain_order=True)


def number_rows(
    rows: pl.DataFrame, split_rows: pl.DataFrame, keys: SortKeys, partition: int, into: int
) -> np.ndarray[Any, Any]:
    """Return the range of each row of a partition, from 0 to ``into`` - 1.

    Rows with the first key of one split row are in the range before it; those with the first key
    of several are divided by the other keys, and by their position where these are equal, too.
    """
    first = keys.by[0]
    groups = split_rows.group_by(first, maintain_order=True).len(_COUNT)
    edges, sizes = groups.get_column(first), groups.get_column(_COUNT).to_numpy()
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    values = rows.get_column(first).cast(edges.dtype)
    if keys.descending[0]:
        found = edges.reverse().search_sorted(values, side="right").to_numpy()
        group = len(edges) - found.astype(np.int64)
    else:
        group = edges.search_sorted(values, side="left").to_numpy().astype(np.int64)
    missing = values.is_null().to_numpy()
    group[missing] = 0
    numbers = starts[group]
    for heavy in np.flatnonzero(sizes > 1):
        candidates = np.flatnonzero((group == heavy) & ~missing)
        # With a series, because a scalar of Python has no nanoseconds.
        edge = edges.gather(np.full(len(candidates), heavy, np.uint32))
        equal = (values.gather(candidates) == edge).to_numpy()
        within = split_rows.slice(int(starts[heavy]), int(sizes[heavy]))
        chosen = candidates[equal]
        numbers[chosen] += _count_splits_before(rows, chosen, within, keys, partition)
    numbers[missing] = into - 1 if keys.nulls_last else 0
    return numbers


def find_sorted_positions(rows: pl.DataFrame, keys: SortKeys) -> pl.Series:
    """Return the positions of the rows in their order; the sort is stable."""
    columns = [_rank_repeated_text(rows.get_column(key)) for key in keys.by]
    if len(columns) > 1 and any(column.dtype == pl.String for column in columns):
        # Polars encodes all keys of a row as bytes: one sort takes as long as one of distinct text.
        return _sort_positions(columns, keys.descending, keys.nulls_last)
    # Numbers and times are sorted one key after the other, the least important first: that takes a
    # quarter of the time of a sort by all of them.
    positions = _sort_positions(columns[-1:], keys.descending[-1:], keys.nulls_last)
    for column, is_descending in zip(columns[-2::-1], keys.descending[-2::-1], strict=True):
        values = [column.gather(positions)]
        positions = positions.gather(_sort_positions(values, [is_descending], keys.nulls_last))
    return positions


def _sort_positions(
    columns: Sequence[pl.Series], descending: Sequence[bool], nulls_last: bool
) -> pl.Series:
    """Return the positions of the rows in a stable order by some columns."""
    names = [f"__key_{number}__" for number in range(len(columns))]
    keys = pl.DataFrame([column.alias(name) for column, name in zip(columns, names, strict=True)])
    # An eager sort of text took three times longer than a lazy one.
    in_order = (
        keys.lazy()
        .with_row_index(POSITION)
        .sort(names, descending=descending, nulls_last=nulls_last, maintain_order=True)
    )
    return in_order.select(POSITION).collect().to_series().rechunk()


def gather_columns(
    rows: pl.DataFrame, names: Iterable[str], positions: pl.Series
) -> Iterator[pl.Series]:
    """Remove one column after the other from a table; yield its values at some positions.

    So rows are in memory once, and one column twice. Each result is one chunk, which Arrow needs;
    text is not copied, as it is if a column of several chunks is gathered.
    """
    for name in names:
        yield rows.drop_in_place(name).rechunk().gather(positions)


def _rank_repeated_text(column: pl.Series) -> pl.Series:
    """Return the ranks of the values of a column of text with few distinct values, or the column.

    Numbers are sorted in a third to a seventh of the time of such text. With more distinct values
    than one of 16 rows the ranks themselves may take longer than the text.
    """
    count = len(column)
    if column.dtype != pl.String or count < 2 * _SAMPLE_SIZE:
        return column
    chosen = np.random.default_rng(0).integers(0, count, _SAMPLE_SIZE)
    if column.gather(chosen).n_unique() > _SAMPLE_SIZE * 15 // 16:
        return column
    distinct = column.unique().drop_nulls()
    if len(distinct) > count // 16:
        return column
    return column.cast(pl.Enum(distinct.sort())).to_physical()


def _count_splits_before(
    rows: pl.DataFrame,
    positions: np.ndarray[Any, Any],
    split_rows: pl.DataFrame,
    keys: SortKeys,
    partition: int,
) -> np.ndarray[Any, Any]:
    """Return the number of split rows before each row; all have the same first key."""
    others = list(keys.by[1:])
    places = pl.Series(positions, dtype=pl.UInt32)
    of_rows = pl.DataFrame(
        [
            *(rows.get_column(name).gather(places) for name in others),
            pl.Series(PARTITION, np.full(len(positions), partition, np.uint32)),
            places.alias(POSITION),
        ]
    )
    splits = split_rows.select([*others, PARTITION, POSITION])
    # Split rows come first, so that the stable sort puts them before an equal row.
    table = concat_tables([splits, of_rows]).with_row_index(_ENTRY)
    table = table.sort(
        splits.columns,
        descending=[*keys.descending[1:], False, False],
        nulls_last=keys.nulls_last,
        maintain_order=True,
    )
    entries = table.get_column(_ENTRY).to_numpy()
    before = np.cumsum(entries < splits.height)
    counts = np.empty(len(entries), np.int64)
    counts[entries] = before
    return counts[splits.height :]
