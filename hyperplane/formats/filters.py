"""Row filters: parsing, Polars expressions, and pruning by statistics."""

from __future__ import annotations

import datetime as dt
import decimal
import difflib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import reduce
from numbers import Real
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
import polars as pl

from hyperplane.core.argument_checks import is_one_of
from hyperplane.core.errors import Fault
from hyperplane.core.units import is_iterable

#: A column, an operator and a value.
Condition = tuple[str, str, Any]
#: Disjunction of conjunctions of conditions; an empty tuple matches all rows.
Filters = tuple[tuple[Condition, ...], ...]

_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_LISTS = ("in", "not in")
_NULLS = ("is null", "not null")
OPERATORS = (*_COMPARISONS, *_LISTS, *_NULLS)
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


class ColumnStatistics(NamedTuple):
    """Statistics of one column of a row group; None where unknown."""

    low: Any
    high: Any
    nulls: int | None
    rows: int


def suggest_similar(name: object, known: Collection[str]) -> str:
    """Return "did you mean ...?" with similar names; empty if there are none."""
    matches = difflib.get_close_matches(str(name), list(known), n=3)
    return f"did you mean {' or '.join(map(repr, matches))}?" if matches else ""


def describe_columns(known: Collection[str]) -> str:
    """Return the description of valid columns, which lists up to 20 of them.

    Examples
    --------
    >>> describe_columns(["a", "b"])
    'a column of the files: a, b'
    """
    more = f" and {len(known) - 20} more" if len(known) > 20 else ""
    return f"a column of the files: {', '.join(list(known)[:20])}{more}"


def is_column(name: object, known: Collection[str]) -> bool:
    """Whether a value of any type is the name of a column."""
    return isinstance(name, str) and name in known


def parse_filters(filters: Any, schema: Mapping[str, pl.DataType]) -> tuple[Filters, list[Fault]]:
    """Parse the ``filters`` argument into :data:`Filters` with converted values, and faults.

    Parameters
    ----------
    filters : list of tuple, or list of list of tuple, optional
        ``(column, operator, value)``; conditions in a list are joined by "and", lists by "or".
    schema : mapping of str to polars.DataType
        The columns of the files.
    """
    if filters is None:
        return (), []
    if faults := find_form_faults(filters):
        return (), faults
    single = all(isinstance(entry, tuple) and _is_condition(entry) for entry in filters)
    groups = [filters] if single else filters
    parsed = []
    for number, group in enumerate(groups):
        where = "filters" if single else f"filters[{number}]"
        if not isinstance(group, (list, tuple)) or not group:
            faults.append(_format_fault(where, group))
            continue
        conditions = []
        for number, entry in enumerate(group):
            condition, condition_faults = _parse_condition(f"{where}[{number}]", entry, schema)
            faults += condition_faults
            if condition is not None:
                conditions.append(condition)
        parsed.append(tuple(conditions))
    return tuple(parsed), faults


def find_form_faults(filters: Any) -> list[Fault]:
    """Return the fault of ``filters`` that are not a list."""
    if filters is None or (isinstance(filters, (list, tuple)) and filters):
        return []
    return [_format_fault("filters", filters)]


def _is_condition(entry: tuple[Any, ...]) -> bool:
    return bool(entry) and isinstance(entry[0], str)


def _format_fault(where: str, value: object) -> Fault:
    return Fault(
        where,
        repr(value)[:80],
        "a list of tuples (column, operator, value), or a list of such lists",
        "write for example filters=[('price', '>', 10)]",
    )


def _parse_condition(
    where: str, entry: Any, schema: Mapping[str, pl.DataType]
) -> tuple[Condition | None, list[Fault]]:
    if not isinstance(entry, (tuple, list)) or len(entry) not in (2, 3):
        return None, [_format_fault(where, entry)]
    name, op, value = entry[0], entry[1], entry[2] if len(entry) == 3 else None
    op = "==" if isinstance(op, str) and op == "=" else op
    faults = []
    if not is_column(name, schema):
        advice = suggest_similar(name, schema)
        faults.append(Fault(where, repr(name)[:80], describe_columns(schema), advice))
    if not is_one_of(op, OPERATORS) or (len(entry) == 2 and op not in _NULLS):
        faults.append(
            Fault(where, repr(op)[:80], f"an operator, one of {', '.join(OPERATORS)}, and a value")
        )
    if faults:
        return None, faults
    if op in _NULLS:
        return (name, op, None), []
    if op in _LISTS and not _is_list(value):
        return None, [Fault(where, repr(value)[:80], f"a list of values for {op!r}")]
    kind = schema[name]
    operands: list[Any] = list(cast("Iterable[Any]", value)) if op in _LISTS else [value]
    try:
        values = [_convert_value(operand, kind) for operand in operands]
    except (TypeError, ValueError) as error:
        return None, [
            Fault(where, repr(value)[:80], f"{error}, for column {name!r} of type {kind}")
        ]
    return (name, op, tuple(values) if op in _LISTS else values[0]), []


def _is_list(value: Any) -> bool:
    return is_iterable(value) and not isinstance(value, (str, bytes))


def _convert_value(value: Any, kind: pl.DataType) -> Any:
    """Convert a value for comparison with a column; errors describe valid values."""
    if isinstance(value, np.generic) and not isinstance(value, (np.datetime64, np.timedelta64)):
        value = value.item()
    if value is None or value is pd.NaT or (isinstance(value, float) and math.isnan(value)):
        raise ValueError("a value that is not missing, or (column, 'is null')")
    for is_kind, accepted, description in _ACCEPTED_VALUES:
        if is_kind(kind):
            if isinstance(value, accepted) and not (
                isinstance(value, bool) and bool not in accepted
            ):
                break
            raise TypeError(description)
    else:
        raise TypeError("only 'is null' and 'not null'")
    if isinstance(kind, pl.Datetime):
        return _to_timestamp(value, kind)
    if isinstance(kind, pl.Duration):
        return pd.Timedelta(cast(dt.timedelta, value))
    if isinstance(value, decimal.Decimal) and not isinstance(kind, pl.Decimal):
        return float(value)
    return value


def _to_timestamp(value: Any, kind: pl.Datetime) -> pd.Timestamp:
    try:
        stamp = pd.Timestamp(value)
    except ValueError as error:
        raise ValueError("a time such as '2024-01-31 12:00'") from error
    if (stamp.tz is None) != (kind.time_zone is None):
        with_or_without = "without" if kind.time_zone is None else "with"
        raise ValueError(f"a time {with_or_without} a time zone")
    return stamp


_ACCEPTED_VALUES: tuple[tuple[Callable[[Any], bool], tuple[type, ...], str], ...] = (
    (lambda kind: kind.is_numeric(), (Real, decimal.Decimal), "a number"),
    (lambda kind: isinstance(kind, pl.Boolean), (bool,), "True or False"),
    (lambda kind: isinstance(kind, pl.String), (str,), "text"),
    (lambda kind: isinstance(kind, pl.Binary), (bytes,), "bytes"),
    (
        lambda kind: isinstance(kind, pl.Datetime),
        (str, dt.date, np.datetime64),
        "a time, such as pd.Timestamp('2024-01-31')",
    ),
    (
        lambda kind: isinstance(kind, pl.Duration),
        (dt.timedelta, np.timedelta64),
        "a pd.Timedelta",
    ),
    (lambda kind: isinstance(kind, pl.Time), (dt.time,), "a datetime.time"),
)


def to_expression(
    filters: Filters, schema: Mapping[str, pl.DataType], columns: Mapping[str, pl.Expr]
) -> pl.Expr:
    """Return nonempty filters as a Polars expression.

    ``columns`` are the expressions of the columns, in the types of ``schema``.
    """
    groups = [
        reduce(
            lambda a, b: a & b, [_build_condition(c, schema[c[0]], columns[c[0]]) for c in group]
        )
        for group in filters
    ]
    return reduce(lambda a, b: a | b, groups)


def _build_condition(condition: Condition, kind: pl.DataType, column: pl.Expr) -> pl.Expr:
    _, op, value = condition
    if op in _NULLS:
        missing = column.is_null()
        if kind.is_float():
            missing = missing | column.is_nan().fill_null(False)
        return missing if op == "is null" else ~missing
    if op in _LISTS:
        matches = _is_in(list(value), kind, column).fill_null(False)
        # Nulls are in no list, so they match "not in", as in pd.read_parquet.
        return matches if op == "in" else ~matches
    return _compare(op, value, kind, column)


def _is_in(values: list[Any], kind: pl.DataType, column: pl.Expr) -> pl.Expr:
    """Return the expression for "in": one lookup if the values have the column's type."""
    is_integer = kind.is_signed_integer() or kind in (pl.UInt8, pl.UInt16, pl.UInt32)
    if is_integer and all(type(value) is int and -(2**63) <= value < 2**63 for value in values):
        return column.cast(pl.Int64).is_in(pl.Series(values, dtype=pl.Int64).implode())
    if kind == pl.String and all(isinstance(value, str) for value in values):
        return column.is_in(pl.Series(values, dtype=pl.String).implode())
    if kind == pl.Float64 and all(type(value) in (int, float) for value in values):
        return column.is_in(pl.Series(values, dtype=pl.Float64, strict=False).implode())
    equal = [_compare("==", value, kind, column) for value in values]
    return reduce(lambda a, b: a | b, equal, pl.lit(False))


def _compare(op: str, value: Any, kind: pl.DataType, column: pl.Expr) -> pl.Expr:
    if isinstance(kind, (pl.Datetime, pl.Duration)):
        return _compare_ticks(op, value, kind, column)
    matches: pl.Expr = _OPERATIONS[op](column, pl.lit(value))
    # Polars orders NaN above all numbers; in pandas comparisons with NaN are false.
    return matches & column.is_not_nan() if kind.is_float() and op in (">", ">=") else matches


def _compare_ticks(op: str, value: Any, kind: Any, column: pl.Expr) -> pl.Expr:
    """Compare times exactly in the unit of the column, also with values between two ticks."""
    ticks, rest = divmod(_to_nanoseconds(value), _NANOSECONDS[kind.time_unit])
    if rest and op in ("==", "!="):
        return column.is_not_null() if op == "!=" else pl.lit(False)
    if rest and op in (">=", "<"):
        ticks += 1
    limits = np.iinfo("int64")
    limited = max(limits.min + 1, min(limits.max, ticks))
    compared: pl.Expr = _OPERATIONS[op](column, pl.lit(limited).cast(kind))
    return compared


def _to_nanoseconds(value: Any) -> int:
    plain = value.tz_convert("UTC").tz_localize(None) if getattr(value, "tz", None) else value
    return int(plain.asm8.astype("int64")) * _NANOSECONDS[value.unit]


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def may_match(filters: Filters, statistics: Callable[[str], ColumnStatistics | None]) -> bool:
    """Whether any row can match the filters, according to statistics of the columns."""
    return not filters or any(
        all(_may_match_condition(condition, statistics(condition[0])) for condition in group)
        for group in filters
    )


def _may_match_condition(condition: Condition, statistics: ColumnStatistics | None) -> bool:
    _, op, value = condition
    if statistics is None or op == "not in":
        return True
    low, high, nulls, rows = statistics
    if op == "is null":
        # Statistics count no NaN as null, and have no values if all are NaN.
        return low is None or isinstance(low, float) or nulls != 0
    if nulls is not None and nulls == rows:
        return False
    if op == "not null" or low is None or high is None:
        return True
    try:
        return _overlaps(op, value, low, high)
    except TypeError:  # not comparable: keep the row group and filter its rows
        return True


def _overlaps(op: str, value: Any, low: Any, high: Any) -> bool:
    if op == "in":
        return any(low <= element <= high for element in value)
    if op == "==":
        return bool(low <= value <= high)
    if op == "!=":
        # Statistics exclude NaN, which differs from every value.
        return isinstance(low, float) or not low == high == value
    return bool(_OPERATIONS[op](low if op in ("<", "<=") else high, value))


def list_filter_columns(filters: Filters) -> Sequence[str]:
    """Return the columns that the filters use, without duplicates."""
    return list(dict.fromkeys(name for group in filters for name, _, _ in group))
