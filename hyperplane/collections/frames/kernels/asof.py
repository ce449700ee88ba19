"""As-of joins of Polars tables: for each row, the nearest earlier or later row of another table.

Polars requires sorted tables and does not match missing keys. Here each combination of keys has a
number, only the columns that are compared are sorted, and whole rows are gathered once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from hyperplane.collections.frames.kernels.concatenate import concat_tables

Direction = Literal["backward", "forward", "nearest"]

_GROUP = "__group__"
_LEFT, _RIGHT = "__left__", "__right__"
#: Value that is compared, as an integer or a float.
_VALUE = "__value__"
_DIFFERENCE = "__difference__"


@dataclass(frozen=True)
class AsofMatch:
    """Which row of the right side belongs to a row of the left side."""

    on: str
    by: tuple[str, ...]
    direction: Direction
    #: Maximum difference, inclusive; nanoseconds for times. None if there is no maximum.
    tolerance: float | None
    allow_exact_matches: bool


@dataclass(frozen=True, eq=False)
class SortedSide:
    """Rows of a right side, prepared once for all partitions of the left side."""

    #: All rows, in their order.
    rows: pl.DataFrame
    #: Distinct keys with their numbers; None without keys.
    groups: pl.DataFrame | None
    #: Number of the keys, value and position of the rows that have a value, sorted by value.
    values: pl.DataFrame

    def __sizeof__(self) -> int:
        """Return the bytes, for Dask."""
        tables = [self.rows, self.values, *([] if self.groups is None else [self.groups])]
        return int(sum(table.estimated_size() for table in tables))


def sort_side(rows: pl.DataFrame, match: AsofMatch) -> SortedSide:
    """Prepare the rows of a right side; equal values keep their order."""
    groups = None
    if match.by:
        groups = rows.select(match.by).unique(maintain_order=True).with_row_index(_GROUP)
    numbered = _number_rows(rows, match, groups, _RIGHT)
    return SortedSide(rows, groups, numbered.sort(match.on, maintain_order=True))


def join_asof(left: pl.DataFrame, right: SortedSide, match: AsofMatch) -> pl.DataFrame:
    """Return the rows of the left side, in their order, with columns of the right side.

    The columns ``on`` and ``by`` are those of the left side; others have different names.
    """
    positions = _find_positions(left, right, match)
    names = [name for name in right.rows.columns if name not in (match.on, *match.by)]
    gathered = right.rows.select(pl.col(name).gather(positions) for name in names)
    return pl.concat([left, gathered], how="horizontal") if names else left


def _number_rows(
    rows: pl.DataFrame, match: AsofMatch, groups: pl.DataFrame | None, position: str
) -> pl.DataFrame:
    """Return the number of the keys, value and position of the rows that can have a match."""
    numbered = rows.select(*match.by, match.on).with_row_index(position)
    if groups is not None:
        numbered = numbered.join(
            groups, on=match.by, how="inner", nulls_equal=True, maintain_order="left"
        )
    else:
        numbered = numbered.with_columns(pl.lit(0, pl.UInt32).alias(_GROUP))
    return numbered.select(_GROUP, match.on, position).drop_nulls(match.on)


def _find_positions(left: pl.DataFrame, right: SortedSide, match: AsofMatch) -> pl.Series:
    """Return the position of the row of the right side for each row; null if there is none."""
    rows = _number_rows(left, match, right.groups, _LEFT)
    values = right.values
    if rows.schema[match.on] != values.schema[match.on]:  # of a partition with another type
        both = concat_tables([rows.select(match.on), values.select(match.on)]).to_series()
        rows = rows.with_columns(both.head(len(rows)))
        values = values.with_columns(both.tail(len(values)))
    kind = rows.schema[match.on]
    # Differences of 64-bit integers need more bits.
    compared = pl.col(match.on).cast(pl.Float64 if kind.is_float() else pl.Int128)
    if kind.is_temporal():
        compared = pl.col(match.on).to_physical().cast(pl.Int128)
    tables = [
        table.lazy().with_columns(compared.alias(_VALUE)).drop(match.on) for table in (rows, values)
    ]
    found = _choose_matches(tables[0].sort(_VALUE), tables[1], match)
    limit = _convert_tolerance(match.tolerance, kind)
    if limit is not None:
        found = found.filter(pl.col(_DIFFERENCE) <= limit)
    matched = found.select(_LEFT, _RIGHT).collect()
    everything = left.select(pl.int_range(pl.len(), dtype=pl.UInt32).alias(_LEFT))
    return everything.join(matched, on=_LEFT, how="left", maintain_order="left").get_column(_RIGHT)


def _choose_matches(left: pl.LazyFrame, right: pl.LazyFrame, match: AsofMatch) -> pl.LazyFrame:
    """Return positions of matching rows, and their differences; both sides are sorted."""
    directions: Sequence[Literal["backward", "forward"]] = (
        ("backward", "forward") if match.direction == "nearest" else (match.direction,)
    )
    value, other = pl.col(_VALUE), pl.col("__other__")
    # The difference of two infinite numbers would not be a number.
    difference = pl.when(value == other).then(0).otherwise((value - other).abs())
    candidates = [
        left.join_asof(
            right.with_columns(pl.col(_VALUE).alias("__other__")),
            on=_VALUE,
            by=_GROUP,
            strategy=direction,
            allow_exact_matches=match.allow_exact_matches,
            check_sortedness=False,
        )
        .drop_nulls(_RIGHT)
        .select(_LEFT, _RIGHT, difference.alias(_DIFFERENCE))
        for direction in directions
    ]
    if len(candidates) == 1:
        return candidates[0]
    # As in pandas, of two rows with equal differences the earlier one is taken: Polars' own
    # "nearest" takes the later one.
    both = pl.concat(candidates).sort(_DIFFERENCE, maintain_order=True)
    return both.unique(_LEFT, keep="first", maintain_order=True)


def _convert_tolerance(tolerance: float | None, kind: pl.DataType) -> float | int | None:
    """Return the tolerance in the unit of the compared values."""
    if tolerance is None or not isinstance(kind, (pl.Datetime, pl.Duration)):
        return tolerance
    return int(tolerance) // {"ns": 1, "us": 1_000, "ms": 1_000_000}[kind.time_unit]
