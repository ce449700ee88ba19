"""Partial states as Polars expressions: computed from rows, merged, converted to results."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from hyperplane.collections.frames.aggregates import OutputColumn, PartialState


def aggregate_state(state: PartialState, dtype: pl.DataType) -> pl.Expr:
    """Return the expression that computes a state from the rows of a group."""
    column = pl.col(state.column)
    expressions = {
        "sum": lambda: _sum(column, dtype),
        "total": lambda: column.cast(pl.Float64).sum(),
        "count": lambda: column.count().cast(pl.Int64),
        "size": lambda: pl.len().cast(pl.Int64),
        "min": lambda: column.min(),
        "max": lambda: column.max(),
        "first": lambda: _aggregate_first(column, state.order),
        "last": lambda: _aggregate_last(column, state.order),
        "mean": lambda: column.cast(pl.Float64).mean(),
        "m2": lambda: (column.cast(pl.Float64) - column.cast(pl.Float64).mean()).pow(2).sum(),
        "set": lambda: column.unique(),
        "values": lambda: column if dtype == pl.Float32 else column.cast(pl.Float64),
    }
    return expressions[state.kind]().alias(state.name)


def _aggregate_first(column: pl.Expr, order: str | None) -> pl.Expr:
    """Return the first value that is not missing; with an order, a struct of order and value."""
    if order is None:
        return column.first(ignore_nulls=True)
    return _select_first(_pair_with_order(column, order))


def _aggregate_last(column: pl.Expr, order: str | None) -> pl.Expr:
    if order is None:
        return column.last(ignore_nulls=True)
    return _select_last(_pair_with_order(column, order))


def _pair_with_order(column: pl.Expr, order: str) -> pl.Expr:
    ordered_value = pl.struct(pl.col(order).alias("at"), column.alias("value"))
    return pl.when(column.is_not_null()).then(ordered_value)


def _select_first(ordered_value: pl.Expr) -> pl.Expr:
    present = ordered_value.drop_nulls()
    return present.get(present.struct.field("at").arg_min(), null_on_oob=True)


def _select_last(ordered_value: pl.Expr) -> pl.Expr:
    present = ordered_value.drop_nulls().reverse()  # so that arg_max finds the last of equal times
    return present.get(present.struct.field("at").arg_max(), null_on_oob=True)


def _sum(column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Return a sum; floats are added in double precision and cast back to their type."""
    result = _widen(column, dtype).sum()
    return result.cast(dtype) if dtype.is_float() else result


def _widen(column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Cast numbers and booleans, except decimals, to 64 bits, so that long sums are precise."""
    if dtype.is_unsigned_integer():
        return column.cast(pl.UInt64)
    if dtype.is_integer() or dtype == pl.Boolean:
        return column.cast(pl.Int64)
    return column.cast(pl.Float64) if dtype.is_float() else column


def merge_states(
    state: PartialState, states: Sequence[PartialState], dtype: pl.DataType
) -> pl.Expr:
    """Return the expression that merges a state of several rows; ``dtype`` is its column's type.

    ``states`` are all states: a mean is merged with its count.
    """
    column = pl.col(state.name)
    if state.kind in ("mean", "m2"):
        state_columns = {
            other.kind: pl.col(other.name) for other in states if other.column == state.column
        }
        means = state_columns["mean"].fill_null(0.0)
        mean = ((state_columns["count"] * means).sum() / state_columns["count"].sum()).fill_nan(0.0)
        if state.kind == "mean":
            return mean.alias(state.name)
        return (column.sum() + (state_columns["count"] * (means - mean).pow(2)).sum()).alias(
            state.name
        )
    expressions = {
        "sum": lambda: _sum(column, dtype),
        "total": column.sum,
        "count": column.sum,
        "size": column.sum,
        "min": column.min,
        "max": column.max,
        "first": lambda: _select_first(column) if state.order else column.first(ignore_nulls=True),
        "last": lambda: _select_last(column) if state.order else column.last(ignore_nulls=True),
        "set": lambda: _explode_lists(column).unique(),
        "values": lambda: _explode_lists(column),
    }
    return expressions[state.kind]().alias(state.name)


def _explode_lists(column: pl.Expr) -> pl.Expr:
    return column.list.explode(keep_nulls=False, empty_as_null=False)


def select_sets(states: Sequence[PartialState]) -> list[PartialState]:
    """Return the states that are sets of distinct values."""
    return [state for state in states if state.kind == "set"]


def get_count_column(state: PartialState) -> str:
    """Return the name of the column with the number of values that count_finished_sets removed."""
    return f"{state.name}n"


def finalize_state(output: OutputColumn) -> pl.Expr:
    """Return the expression that computes the result of a function from its states."""
    states = {state.kind: pl.col(state.name) for state in output.states}
    if output.function == "mean":
        return states["total"] / pl.when(states["count"] > 0).then(states["count"])
    if output.function in ("var", "std"):
        variance = states["m2"] / (pl.when(states["count"] > 1).then(states["count"]) - 1)
        return variance.sqrt() if output.function == "std" else variance
    if output.function == "median":
        return _median(states["values"])
    if output.function == "nunique":
        return states["set"].list.len().cast(pl.Int64) + pl.col(get_count_column(output.states[0]))
    state = output.states[0]
    has_order = state.order is not None and state.kind in ("first", "last")
    return states[state.kind].struct.field("value") if has_order else states[state.kind]


def _median(values: pl.Expr) -> pl.Expr:
    """Return the medians of lists.

    Not with Polars' own median, ``low + (high - low) / 2``, which is NaN if low is -inf, and may
    overflow.
    """
    ordered = values.list.sort()
    length = values.list.len().cast(pl.Int64)
    low = ordered.list.get((length - 1) // 2, null_on_oob=True)
    high = ordered.list.get(length // 2, null_on_oob=True)
    return pl.when(low == high).then(low).otherwise(low / 2 + high / 2)
