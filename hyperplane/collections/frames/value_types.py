"""Check of the types of values against the functions that aggregate them."""

from __future__ import annotations

import polars as pl

from hyperplane.collections.frames.aggregates import NUMERIC_FUNCTIONS, Aggregation
from hyperplane.core.errors import DataError


def check_value_types(rows: pl.LazyFrame, aggregation: Aggregation) -> None:
    """Raise DataError if a function is not defined for the type of the values of a column."""
    schema = rows.collect_schema()
    for output in aggregation.outputs:
        kind = schema[output.column]
        is_number = kind.is_numeric() or kind in (pl.Boolean, pl.Null)
        if output.function in ("min", "max") and kind.is_nested():
            raise DataError(output.column, f"is of type {kind}, which has no {output.function}")
        if output.function in NUMERIC_FUNCTIONS and not is_number:
            if output.function == "sum" and isinstance(kind, pl.Duration):
                continue
            first = rows.select(output.column).drop_nulls().head(1).collect()
            example = f", such as {first.item()!r:.60}" if first.height else ""
            type_name = "text" if kind == pl.String else str(kind).lower()
            raise DataError(
                output.column,
                f"holds {type_name}{example}; {output.function!r} needs numbers or booleans",
            )
