"""Translation of the row filters of a Dask expression to Polars, for predicate pushdown.

Only filters with the same result in both are translated: comparisons with a constant except
``!=``, ``isin``, ``isna``, ``notnull`` and their combinations. Dask evaluates collections with
other filters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
from dask.base import is_dask_collection

from hyperplane.core.dask_internals.frames import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    And,
    Filter,
    FromMap,
    Invert,
    Isin,
    IsNa,
    NotNull,
    Or,
    Projection,
)
from hyperplane.formats.reader import PartitionReader

#: Maximum number of values of an ``isin`` that is translated to one comparison per value.
_MAX_CONSTANTS = 100
_COMPARISONS: dict[type, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    GT: lambda a, b: a > b,
    GE: lambda a, b: a >= b,
    LT: lambda a, b: a < b,
    LE: lambda a, b: a <= b,
    EQ: lambda a, b: a == b,
}


def extract_filters(expr: Any) -> tuple[Any, pl.Expr | None] | None:
    """Return the reading step and the filters of a collection made by :func:`read`.

    None if the expression has other steps than filters and column selections after a
    :class:`PartitionReader`, or a filter that is not translated.
    """
    if isinstance(expr, FromMap) and isinstance(expr.func, PartitionReader):
        # A selection of partitions, such as df.partitions[1:], is left to Dask.
        return (expr, None) if expr.operand("_partitions") is None else None
    if isinstance(expr, Projection) and isinstance(expr.operand("columns"), list):
        return extract_filters(expr.frame)
    if isinstance(expr, Filter):
        source = extract_filters(expr.frame)
        if source is None:
            return None
        condition = _translate_condition(expr.predicate, source[0])
        if condition is None:
            return None
        root, where = source
        return root, condition if where is None else where & condition
    return None


def _translate_condition(expr: Any, root: Any) -> pl.Expr | None:
    """Translate a condition to an expression that is true or false, never missing, as in pandas.

    NaN and null both count as missing, so the expression can be applied before NaN is replaced by
    null. None if the condition cannot be translated.
    """
    if isinstance(expr, (And, Or)):
        left, right = _translate_condition(expr.left, root), _translate_condition(expr.right, root)
        if left is None or right is None:
            return None
        return left & right if isinstance(expr, And) else left | right
    if isinstance(expr, Invert):
        inner = _translate_condition(expr.frame, root)
        return None if inner is None else ~inner
    if isinstance(expr, (IsNa, NotNull)):
        column = _translate_column(expr.frame, root)
        if column is None:
            return None
        missing = _is_missing(column) if _is_float(expr.frame) else column.is_null()
        return missing if isinstance(expr, IsNa) else ~missing
    if isinstance(expr, Isin):
        return _translate_isin(expr, root)
    compare = _COMPARISONS.get(type(expr))
    if compare is None:
        return None
    column, value = _translate_column(expr.left, root), _translate_constant(expr.right, expr.left)
    if column is None or value is None:
        return None
    condition = compare(column, value)
    if _is_float(expr.left) and isinstance(expr, (GT, GE)):
        condition = condition & column.is_not_nan()  # for Polars NaN is the largest number
    return condition.fill_null(value=False)


def _is_missing(column: pl.Expr) -> pl.Expr:
    """Return the condition that a float is null or NaN."""
    return column.is_null() | column.is_nan().fill_null(value=False)


def _is_float(expr: Any) -> bool:
    return getattr(expr._meta.dtype, "kind", "") == "f"


def _translate_isin(expr: Any, root: Any) -> pl.Expr | None:
    values = _get_isin_values(expr.operand("values"))
    column = _translate_column(expr.frame, root)
    if column is None or values is None or expr.frame._meta.dtype == "float32":
        return None  # pandas compares float32 with 0.1 as float32, but isin in float64
    kind = getattr(expr.frame._meta.dtype, "kind", "")
    if kind == "i" and all(type(value) is int and -(2**63) <= value < 2**63 for value in values):
        return column.cast(pl.Int64).is_in(pl.Series(values, dtype=pl.Int64).implode())
    if kind == "f" and values and all(type(value) in (int, float) for value in values):
        numbers = pl.Series(values, dtype=pl.Float64, strict=False)
        condition = column.is_in(numbers.drop_nans().implode()).fill_null(value=False)
        return condition if not numbers.is_nan().any() else condition | _is_missing(column)
    is_text = isinstance(expr.frame._meta.dtype, pd.StringDtype)
    if is_text and values and all(isinstance(value, str) for value in values):
        texts = pl.Series(values, dtype=pl.String)
        return column.is_in(texts.implode()).fill_null(value=False)
    constants = [_translate_constant(value, expr.frame) for value in values]
    # pandas compares integers with floats as floats, which are exact up to 2**53.
    inexact = kind in ("i", "u") and any(type(v) is float and abs(v) >= 2**53 for v in values)
    if (
        inexact
        or not 0 < len(constants) <= _MAX_CONSTANTS
        or any(constant is None for constant in constants)
    ):
        return None
    return pl.any_horizontal(
        [(column == constant).fill_null(value=False) for constant in constants]
    )


def _get_isin_values(wrapped: Any) -> list[Any] | None:
    """Return the values of an ``isin``, which Dask wraps as an array in a task; None if unknown."""
    inner = getattr(wrapped, "operands", [None])[0]
    values = (
        getattr(inner.dask.get(inner.key), "value", None) if is_dask_collection(inner) else None
    )
    if isinstance(values, np.ndarray) and values.dtype.kind in "biufUO":
        return list(values.tolist())
    return list(values) if isinstance(values, (tuple, set)) else None


def _translate_column(expr: Any, root: Any) -> pl.Expr | None:
    """Translate an unchanged column of the same rows; None for other expressions."""
    if not isinstance(expr, Projection) or not isinstance(expr.operand("columns"), str):
        return None
    source = extract_filters(expr.frame)
    if source is None or source[0]._name != root._name:
        return None
    dtype = expr._meta.dtype
    # Only types that pandas and Polars compare alike, with one kind of missing value.
    if isinstance(dtype, (pd.CategoricalDtype, pd.ArrowDtype)) or _is_nullable(dtype):
        return None
    return pl.col(expr.operand("columns"))


def _is_nullable(dtype: Any) -> bool:
    """Return whether comparing a missing value of this type gives a missing value, not False."""
    return hasattr(dtype, "numpy_dtype")


def _translate_constant(value: Any, like: Any) -> pl.Expr | None:
    kind = getattr(like._meta.dtype, "kind", "O")
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind in "iuf" and is_number and value == value:
        return pl.lit(value)
    if isinstance(like._meta.dtype, pd.StringDtype) and isinstance(value, str):
        return pl.lit(value)
    if kind == "b" and isinstance(value, bool):
        return pl.lit(value)
    if kind == "M" and isinstance(value, pd.Timestamp) and value is not pd.NaT:
        return _translate_timestamp(value, getattr(like._meta.dtype, "tz", None))
    return None


def _translate_timestamp(value: pd.Timestamp, zone: Any) -> pl.Expr | None:
    """Translate a timestamp to the time zone of a column, as Polars requires."""
    if value.nanosecond or (value.tz is None) != (zone is None):
        return None
    if zone is None:
        return pl.lit(value.to_pydatetime())
    utc = pl.lit(value.tz_convert("UTC").tz_localize(None).to_pydatetime())
    return utc.dt.replace_time_zone("UTC").dt.convert_time_zone(str(zone))
