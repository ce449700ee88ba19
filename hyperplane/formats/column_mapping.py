"""Conversion of the columns of a file to those of the data set."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from hyperplane.formats import filters as row_filters
from hyperplane.formats.filters import Filters
from hyperplane.formats.polars_frames import column, columns

_SMALL = (pl.Int8, pl.Int16, pl.UInt8, pl.UInt16)


@dataclass(frozen=True)
class ColumnMapping:
    """Conversion of the columns of files with the same schema to those of the data set.

    Parameters
    ----------
    schema : tuple of (str, polars.DataType)
        The requested columns of the data set.
    filter_schema : tuple of (str, polars.DataType)
        The columns that the filters use.
    cast : frozenset of str
        Columns that have another type in the files.
    constants : tuple of (str, object)
        Columns that are not in the files, with their constant value; None if missing.
    categories : tuple of (str, tuple of str)
        Columns of ordered categories, with these categories.
    lossy : frozenset of str
        Those of ``cast`` where the cast may lose information, so that values are checked.
    uuids : frozenset of str
        Those of ``cast`` that are UUIDs of 16 bytes in the files.
    any_column : str, optional
        A column of the files, which is read to count the rows if no other column is needed.
    has_nan : bool
        Whether missing values may be NaN in the files; that is replaced by null.
    """

    schema: tuple[tuple[str, pl.DataType], ...]
    filter_schema: tuple[tuple[str, pl.DataType], ...] = ()
    cast: frozenset[str] = frozenset()
    constants: tuple[tuple[str, Any], ...] = ()
    categories: tuple[tuple[str, tuple[str, ...]], ...] = ()
    lossy: frozenset[str] = frozenset()
    uuids: frozenset[str] = frozenset()
    any_column: str | None = None
    has_nan: bool = True

    def apply(
        self,
        raw: pl.LazyFrame,
        filters: Filters,
        names: Collection[str] | None = None,
        where: pl.Expr | None = None,
    ) -> pl.LazyFrame:
        """Return the rows that match the filters and ``where``, with columns of the data set."""
        values = dict(self.constants)
        if filters:
            kinds = dict(self.filter_schema)
            inputs = {
                name: self._make_input_expr(name, kind, values) for name, kind in kinds.items()
            }
            raw = raw.filter(row_filters.to_expression(filters, kinds, inputs))
        early = where is not None and self._is_unchanged(where.meta.root_names())
        if where is not None and early:
            raw = raw.filter(where)  # before casts, so that Polars converts fewer rows
        selected = [entry for entry in self.schema if names is None or entry[0] in names]
        exprs = [self._make_output_expr(name, kind, values) for name, kind in selected]
        # Not select: constants are literals, which alone would give a frame of one row.
        complete = raw.with_columns([expr for expr in exprs if expr is not None])
        complete = complete.select(columns(name for name, _ in selected))
        return complete if where is None or early else complete.filter(where)

    def _is_unchanged(self, names: Collection[str]) -> bool:
        return self.cast.union(dict(self.constants)).isdisjoint(names)

    def raw_columns(self, names: Collection[str]) -> list[str]:
        """Return the file columns that ``names`` and the filters need; at least one."""
        values = dict(self.constants)
        needed = {*names, *(name for name, _ in self.filter_schema)}.difference(values)
        every = dict([*self.schema, *self.filter_schema])
        wanted = [name for name in every if name in needed]
        others = (name for name in [*every, self.any_column] if name not in values)
        return wanted or [name for name in others if name is not None][:1]

    def _make_input_expr(self, name: str, kind: pl.DataType, values: dict[str, Any]) -> pl.Expr:
        if name in values:
            return pl.lit(values[name], kind)
        if name in self.uuids:
            return _format_uuids(column(name))
        if name in self.lossy:
            return column(name).map_batches(partial(cast_exactly, kind=kind), return_dtype=kind)
        return column(name).cast(kind) if name in self.cast else column(name)

    def _make_output_expr(
        self, name: str, kind: pl.DataType, values: dict[str, Any]
    ) -> pl.Expr | None:
        expr = self._make_input_expr(name, kind, values)
        categories = dict(self.categories).get(name)
        if categories is not None:
            # A direct cast to a category would turn unknown values into nulls; Enum raises.
            return expr.cast(pl.Enum(categories)).cast(kind)
        if self.has_nan and kind.is_float() and name not in values:
            return expr.fill_nan(None)  # pandas does not distinguish the two; only null remains
        return expr.alias(name) if name in self.cast or name in values else None


def _format_uuids(values: pl.Expr) -> pl.Expr:
    """Format UUIDs of 16 bytes as ``01234567-89ab-cdef-0123-456789abcdef``."""
    digits, ends = values.bin.encode("hex"), (0, 8, 12, 16, 20, 32)
    pieces = [digits.str.slice(start, stop - start) for start, stop in pairwise(ends)]
    return pl.concat_str(pieces, separator="-")


def may_lose(source: pl.DataType, target: pl.DataType) -> bool:
    """Whether a cast from one type to a wider one can lose information.

    Examples
    --------
    >>> may_lose(pl.Int64(), pl.Float64()), may_lose(pl.Int32(), pl.Float64())
    (True, False)
    """
    if source.is_integer() and target.is_float():
        return source in (pl.Int64, pl.UInt64) or (target == pl.Float32 and source not in _SMALL)
    return source.is_temporal() and source != target


def choose_any_column(
    kinds: Mapping[str, pl.DataType], excluded: Collection[str | None]
) -> str | None:
    """Return a column that is not excluded, one of numbers if there is one; None if there is none.

    Examples
    --------
    >>> choose_any_column({"s": pl.String(), "n": pl.Int64(), "m": pl.Int8()}, ["n"])
    'm'
    """
    names = [name for name in kinds if name not in excluded]
    return next((name for name in names if kinds[name].is_numeric()), next(iter(names), None))


class InexactValue(ValueError):
    """A value that the common type of its column in all files cannot represent."""


def cast_exactly(values: pl.Series, kind: pl.DataType) -> pl.Series:
    """Cast values to another type.

    Raises
    ------
    InexactValue
        If the type cannot represent a value exactly.
    """
    # Polars treats names such as ^x$ as patterns.
    name, values = values.name, values.alias("values")
    converted = values.cast(kind)
    round_trip = converted.cast(values.dtype, strict=False)
    lost = values.is_not_null() & ~round_trip.eq_missing(values)
    if values.dtype.is_integer():
        # The maximum 64-bit integer survives the round trip, although its float is larger.
        lost |= converted.is_not_null() & (
            converted >= float(2 ** (63 + (values.dtype == pl.UInt64)))
        )
    row = lost.arg_max() if lost.any() else None
    if row is not None:
        raise InexactValue(
            f"column {name!r} holds {values[row]}, which {kind}, the common type of the column "
            "in all files, cannot represent; leave the column out with columns=[...], or read "
            "the files of each type separately"
        )
    return converted.alias(name)


#: Adds the last lazy operations to the frame of one file slice, and collects it.
CollectStep = Callable[[pl.LazyFrame], pl.DataFrame]
#: Yields the filtered and collected frame of each file slice; takes names of columns.
ReadFrames = Callable[[Collection[str], CollectStep], Iterator[pl.DataFrame]]


def concatenate(
    frames: ReadFrames, names: Sequence[str], schema: dict[str, pl.DataType]
) -> pl.DataFrame:
    """Return some columns of all file slices, concatenated."""
    empty = pl.DataFrame(schema={name: schema[name] for name in names})
    frames_read = frames(names, lambda lazy: lazy.select(columns(names)).collect())
    return pl.concat([empty, *frames_read], rechunk=False)


def scan_python(frames: ReadFrames, schema: dict[str, pl.DataType]) -> pl.LazyFrame:
    """Return a lazy frame that is read by Python code, with projection and predicate pushdown."""

    def source(
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        names = list(schema) if with_columns is None else with_columns
        left = n_rows

        def finish(lazy: pl.LazyFrame) -> pl.DataFrame:
            chosen = lazy.select(columns(names))
            if predicate is not None:
                chosen = chosen.filter(predicate)
            return (chosen if left is None else chosen.head(left)).collect()

        for frame in frames(names, finish):
            yield frame
            if left is not None:
                left -= frame.height
                if left <= 0:
                    return

    return register_io_source(source, schema=schema)
