"""Kernels of group-bys, windows, top rows, distinct rows and counts, in Polars.

Polars releases the GIL and has one thread pool per worker process. Missing values are null in all
tables: readers and :func:`from_pandas` convert NaN and NaT to null.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import polars as pl
from dask.sizeof import sizeof

from hyperplane.collections.frames.aggregates import GROWING_STATES, PartialState
from hyperplane.collections.frames.kernels.concatenate import concat_tables
from hyperplane.collections.frames.kernels.partial_states import (
    aggregate_state,
    get_count_column,
    merge_states,
    select_sets,
)
from hyperplane.collections.frames.time_bins import BIN, INSTANT, LAST_INSTANT, TimeWindows

#: Column of partial tables with a number of rows.
COUNT = "__n__"
_POSITION = "__position__"
#: Up to this many pieces, one filter per piece is faster than ``partition_by``.
_MAX_FILTERED_PIECES = 16
#: Rows from which partial tables are merged by the streaming engine.
_MIN_STREAMED_ROWS = 100_000
#: Bytes of the view of a text, and of a text that is part of its view.
_VIEW, _SHORT_TEXT = 16, 12
#: Time unit -> its nanoseconds.
_NS = {"ms": 10**6, "us": 10**3, "ns": 1}


@sizeof.register(pl.DataFrame)  # type: ignore[untyped-decorator]
def _sizeof(frame: pl.DataFrame) -> int:
    """Return the bytes of a Polars frame, for Dask's memory management.

    Polars counts the bytes of texts. Each also takes a view of 16 bytes, which has short texts.
    """
    size = int(frame.estimated_size())
    for column in frame.iter_columns():
        if column.dtype in (pl.String, pl.Binary) and len(column):
            texts = int(column.estimated_size())
            is_short = texts <= _SHORT_TEXT * len(column)
            size += _VIEW * len(column) - (texts if is_short else 0)
    return size


def aggregate_rows(
    frame: pl.LazyFrame,
    keys: Sequence[str],
    states: Sequence[PartialState],
    required: Sequence[str] | None = None,
) -> pl.DataFrame:
    """Return the partial states of the rows, one row per group.

    Rows with a missing key of ``required``, by default of all keys, are dropped. With time bins
    only rows with a missing time are dropped: windows begin at the first time of all rows, even of
    those with a missing key.
    """
    schema = frame.collect_schema()
    if required is None:
        required = [BIN] if BIN in keys else keys
    frame = drop_missing(frame, required)
    expressions = [aggregate_state(state, schema[state.column]) for state in states]
    expressions += [
        pl.lit(0, pl.Int64).alias(get_count_column(state)) for state in select_sets(states)
    ]
    expressions += _aggregate_instants(schema)
    grouped = frame.group_by(list(keys)).agg(expressions)
    # Nulls are dropped after the aggregation: in the aggregation this would run once per group,
    # which is much slower.
    lists = [state.name for state in states if state.kind in GROWING_STATES]
    return grouped.with_columns(pl.col(lists).list.drop_nulls()).collect(
        # The streaming engine needs less memory, but does not keep the order of rows.
        engine="in-memory" if _depend_on_order(states) else "streaming"
    )


def _depend_on_order(states: Sequence[PartialState]) -> bool:
    """Return whether states depend on the order of the rows of a group."""
    return any(state.kind in ("first", "last") for state in states)


def merge_partials(
    tables: Sequence[pl.DataFrame], keys: Sequence[str], states: Sequence[PartialState]
) -> pl.DataFrame:
    """Merge partial tables, in the order of their rows."""
    table = concat_tables(tables)
    expressions = [merge_states(state, states, table.schema[state.name]) for state in states]
    expressions += [pl.col(get_count_column(state)).sum() for state in select_sets(states)]
    expressions += _merge_instants(table.columns)
    grouped = table.lazy().group_by(list(keys)).agg(expressions)
    # With 750,000 rows of two texts the streaming engine took a third of the time; with fewer than
    # 50,000 it takes longer.
    is_large = table.height >= _MIN_STREAMED_ROWS and not _depend_on_order(states)
    return grouped.collect(engine="streaming" if is_large else "in-memory")


def drop_missing(frame: pl.LazyFrame, columns: Sequence[str]) -> pl.LazyFrame:
    """Drop rows with a missing value in one of the columns."""
    for column in columns:
        frame = frame.filter(pl.col(column).is_not_null())
    return frame


def add_bins(frame: pl.LazyFrame, windows: TimeWindows) -> pl.LazyFrame:
    """Add the column of time bins; a bin is missing where the time is missing."""
    schema = frame.collect_schema()
    time = pl.col(windows.time)
    unit: Literal["ms", "us", "ns"] = "ms"
    kind = schema[windows.time]
    if isinstance(kind, pl.Datetime):
        unit = kind.time_unit
    else:  # a date
        time = time.cast(pl.Datetime(unit))
    local = time.dt.convert_time_zone(windows.zone) if windows.zone else time
    ticks = local.dt.replace_time_zone(None).cast(pl.Int64) if windows.zone else time.cast(pl.Int64)
    ticks = ticks + windows.utc_offset // _NS[unit]
    width = max(windows.bin_width // _NS[unit], 1)
    excess = ticks % width  # floored modulo, also for times before 1970
    if windows.exact and windows.closed != "right":
        bin_ = ticks - excess
    elif windows.exact:
        bin_ = ticks + (-ticks) % width
    else:
        bin_ = ticks - excess + (excess != 0).cast(pl.Int64)
    added = {BIN: bin_.cast(pl.Datetime(unit))}
    if windows.keeps_instants:
        added[INSTANT] = time.cast(pl.Int64).cast(pl.Datetime(unit))
    return frame.with_columns(**added)


def _to_canonical_type(column: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """Cast a key to one type per family, since its type may differ between partitions."""
    if kind.is_numeric() or kind == pl.Boolean:
        return column.cast(pl.Float64)
    if isinstance(kind, pl.Duration):
        return column.cast(pl.Duration("us"))
    return column.cast(pl.Datetime("us")) if isinstance(kind, pl.Datetime) else column


def split_by_hash(table: pl.DataFrame, keys: Sequence[str], into: int) -> list[pl.DataFrame]:
    """Split a table by the hash of its keys; equal keys of any task get the same piece."""
    return split_by_number(table, hash_rows(table, keys, into), into)


def hash_rows(table: pl.DataFrame, keys: Sequence[str], into: int) -> pl.Series:
    """Return the number of the piece of each row, by the hash of its keys."""
    return (hash_keys(table, keys) % into).cast(pl.UInt32)


def hash_keys(table: pl.DataFrame, keys: Sequence[str]) -> pl.Series:
    """Return the hash of the keys of each row, which is the same in every process."""
    # A missing value has the same hash for every type, since partitions may differ in type.
    hashes = [
        _to_canonical_type(pl.col(key), table.schema[key]).hash(seed).fill_null(seed)
        for seed, key in enumerate(keys)
    ]
    mixed = pl.fold(pl.lit(0, pl.UInt64), lambda a, b: a ^ b, hashes)
    return table.select(mixed).to_series()


def split_by_number(table: pl.DataFrame, number: pl.Series, into: int) -> list[pl.DataFrame]:
    """Split rows by their number from 0 to ``into`` - 1; the order of rows is kept."""
    if into <= _MAX_FILTERED_PIECES:
        return [table.filter(number == position) for position in range(into)]
    marked = table.with_columns(number.alias("__number__"))
    pieces = marked.partition_by("__number__", as_dict=True, include_key=False)
    return [pieces.get((position,), table.clear()) for position in range(into)]


def iterate_pieces(
    table: pl.DataFrame, numbers: np.ndarray[Any, Any], into: int
) -> Iterator[pl.DataFrame]:
    """Yield the rows of each number from 0 to ``into`` - 1; the order of rows is kept.

    The pieces are slices of one copy, in which text is not copied: gathering the rows of each
    piece took ten times longer.
    """
    numbers = numbers.astype(np.uint16)  # at most MAX_PARTITIONS, for NumPy's radix sort
    positions = pl.Series(np.argsort(numbers, kind="stable").astype(np.uint32))
    in_order = table.lazy().select(pl.all().gather(positions)).collect()
    last = 0
    for count in np.bincount(numbers, minlength=into):
        first, last = last, last + int(count)
        yield in_order.slice(first, last - first)


def select_bins(table: pl.DataFrame) -> pl.DataFrame:
    """Return the distinct time bins of a partial table."""
    columns = [column for column in (BIN, INSTANT, LAST_INSTANT) if column in table.columns]
    return table.select(columns).unique()


def merge_bins(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return the distinct time bins of several tables."""
    return select_bins(pl.concat(tables))


def count_finished_sets(
    table: pl.DataFrame,
    states: Sequence[PartialState],
    max_width: int,
    time_ranges: Sequence[tuple[int, int]],
) -> pl.DataFrame:
    """Replace sets of distinct values by their sizes, in groups that no other table can have.

    Without ``time_ranges`` these are all groups. ``max_width`` is an upper bound of the
    nanoseconds of a window: times that are closer together may share a window. ``time_ranges`` are
    the first and last times of the other tables, in microseconds since 1970.
    """
    shared: pl.Expr = pl.lit(value=False)
    bin_time = pl.col(BIN).dt.cast_time_unit("us").cast(pl.Int64) if time_ranges else pl.lit(0)
    for first, last in time_ranges:
        shared = shared | bin_time.is_between(
            first - max_width // 1000 - 1, last + max_width // 1000 + 1
        )
    columns = []
    for state in select_sets(states):
        size, values = pl.col(state.name).list.len().cast(pl.Int64), pl.col(state.name)
        remaining = pl.when(shared).then(values).otherwise(values.list.head(0))
        count = pl.col(get_count_column(state)) + pl.when(shared).then(0).otherwise(size)
        columns += [remaining.alias(state.name), count.alias(get_count_column(state))]
    return table.with_columns(columns)


def select_top_rows(
    frame: pl.LazyFrame, keys: Sequence[str], column: str, n: int, descending: bool
) -> pl.DataFrame:
    """Return the first n rows of each group by a column, in their original order.

    Only the positions of rows are sorted; whole rows are gathered only for the result.
    """
    position = pl.int_range(pl.len(), dtype=pl.Int64).alias(_POSITION)
    ranked = drop_missing(frame.select(*keys, column, position), keys)
    order = pl.col(_POSITION).sort_by(
        column, descending=descending, nulls_last=True, maintain_order=True
    )
    positions = (
        ranked.group_by(list(keys)).agg(order.head(n)).select(pl.col(_POSITION).list.explode())
    )
    in_original_order = positions.collect().get_column(_POSITION).sort()
    return frame.select(pl.all().gather(in_original_order)).collect()


def drop_repeats(
    frame: pl.LazyFrame, columns: Sequence[str], keep: Literal["first", "last"]
) -> pl.DataFrame:
    """Drop rows whose values occur in an earlier row, or in a later one (keep="last")."""
    if set(columns) == set(frame.collect_schema()):
        # Equal rows are interchangeable, and keep="any" is twice as fast with streaming.
        return frame.unique(keep="any").collect(engine="streaming")
    return frame.unique(subset=list(columns), keep=keep, maintain_order=False).collect()


def count_values(
    frame: pl.LazyFrame, keys: Sequence[str], targets: Sequence[str]
) -> list[pl.DataFrame]:
    """Count the rows of each key and value, one table per target; the value is the first column.

    Rows with missing keys are included: no window counts them, but their values are columns of the
    result.
    """
    schema = frame.collect_schema()
    number = pl.len().cast(pl.Int64).alias(COUNT)
    return pl.collect_all(
        [
            frame.group_by([target, *keys]).agg(*_aggregate_instants(schema), number)
            for target in targets
        ],
        engine="streaming",
    )


def merge_counts(tables: Sequence[pl.DataFrame], keys: Sequence[str], target: str) -> pl.DataFrame:
    """Add up counts of the same keys and values."""
    table = concat_tables(tables, booleans_as_numbers=target)
    return table.group_by([target, *keys]).agg(*_merge_instants(table.schema), pl.col(COUNT).sum())


def _aggregate_instants(columns: Container[str]) -> list[pl.Expr]:
    """Return expressions for the first and last instant of each bin, if bins are local days."""
    if INSTANT not in columns:
        return []
    return [pl.col(INSTANT).min(), pl.col(INSTANT).max().alias(LAST_INSTANT)]


def _merge_instants(columns: Container[str]) -> list[pl.Expr]:
    return [pl.col(INSTANT).min(), pl.col(LAST_INSTANT).max()] if INSTANT in columns else []


def select_most_frequent(
    table: pl.DataFrame, target: str, keys: Sequence[str], top: int | None
) -> pl.Series:
    """Return the distinct values, or the ``top`` most frequent ones, sorted."""
    counted = pl.when(pl.all_horizontal(pl.col(list(keys)).is_not_null())).then(COUNT)
    totals = table.drop_nulls(target).group_by(target).agg(counted.sum().alias(COUNT))
    if top is not None:
        totals = totals.sort(COUNT, target, descending=[True, False]).head(top)
    return totals.get_column(target).sort()


def pivot_counts(
    table: pl.DataFrame, rows: pl.DataFrame, target: str, values: pl.Series
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return counts as an array with a row for each row of keys and a column for each value."""
    columns = pl.DataFrame({target: values}).with_row_index("__column_number__")
    numbered_rows = rows.with_row_index("__row_number__")
    entries = table.join(columns, on=target).join(numbered_rows, on=rows.columns)
    result = np.zeros((rows.height, len(values)), dtype=np.int64)
    positions = (
        entries.get_column("__row_number__").to_numpy(),
        entries.get_column("__column_number__").to_numpy(),
    )
    np.add.at(result, positions, entries.get_column(COUNT).to_numpy().astype(np.int64))
    return result
