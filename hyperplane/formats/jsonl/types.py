"""Types of JSON values: inference, conversion and checks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import polars as pl
import pyarrow as pa

from hyperplane.core.units import MAX_EXACT_FLOAT

#: Shared encoder, because json.dumps creates one for each call.
_ENCODE = json.JSONEncoder(ensure_ascii=False).encode


class _MixedTypes(ValueError):
    """Values that only text can represent."""


def infer_type(values: Sequence[Any]) -> pl.DataType:
    """Return a type that represents all values exactly; string if there is no other.

    A struct has the fields of all objects.

    Examples
    --------
    >>> infer_type([{"a": 1}, {"a": 2, "b": "x"}, None])
    Struct({'a': Int64, 'b': String})
    >>> infer_type([["a"], [1, True]]), infer_type([1, 2.5]), infer_type([2**53 + 1, 2.5])
    (String, Float64, String)
    """
    try:
        return _infer_type(values)
    except _MixedTypes:
        return pl.String()


def _infer_type(values: Iterable[Any]) -> pl.DataType:
    present = [value for value in values if value is not None]
    kinds = {type(value) for value in present}
    if not kinds or kinds == {str}:
        return pl.String()
    if kinds == {bool}:
        return pl.Boolean()
    if kinds == {int}:
        least, most = min(present), max(present)
        if least >= -(2**63) and most < 2**63:
            return pl.Int64()
        if least >= 0 and most < 2**64:
            return pl.UInt64()
    elif kinds <= {int, float}:
        if all(is_exact(value) for value in present):
            return pl.Float64()
    elif kinds == {list}:
        return pl.List(_infer_type([inner for value in present for inner in value]))
    elif kinds == {dict}:
        names = list(dict.fromkeys(name for value in present for name in value))
        if names:
            fields = {name: _infer_type([value.get(name) for value in present]) for name in names}
            return pl.Struct(fields)
    raise _MixedTypes


def is_exact(value: int | float) -> bool:
    """Whether float64 represents the number exactly."""
    return isinstance(value, float) or abs(value) <= MAX_EXACT_FLOAT or _as_float(value) == value


def _as_float(value: int) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None


def to_text(value: Any) -> str | None:
    """Convert a value to text: text is unchanged, anything else becomes JSON."""
    if value is None or isinstance(value, str):
        return value
    return repr(value) if type(value) is int else _ENCODE(value)


def convert_values(values: Sequence[Any], kind: Any) -> list[Any] | None:
    """Convert values to a type; None if one of them does not fit.

    Examples
    --------
    >>> convert_values([1, None, 2.5], pl.Float64()), convert_values([1, True], pl.Int64())
    ([1.0, None, 2.5], None)
    >>> convert_values(["a", 1, [True]], pl.String())
    ['a', '1', '[true]']
    """
    value_types = set(map(type, values)) - {type(None)}
    if isinstance(kind, pl.String):
        return list(values) if value_types <= {str} else list(map(to_text, values))
    if isinstance(kind, pl.Boolean):
        return list(values) if value_types <= {bool} else None
    if kind.is_integer() and value_types <= {int}:
        present = [value for value in values if value is not None]
        least, most = _get_integer_bounds(kind)
        return (
            list(values)
            if not present or (least <= min(present) and max(present) <= most)
            else None
        )
    if kind.is_float() and value_types <= {float}:
        return list(values)
    if not all(fits(value, kind) for value in values):
        return None
    return [convert_to_floats(value, kind) for value in values]


def convert_to_floats(value: Any, kind: Any) -> Any:
    """Convert integers to floats where the type of a fitting value requires it.

    Examples
    --------
    >>> convert_to_floats([2**60, None], pl.List(pl.Float64()))
    [1.152921504606847e+18, None]
    """
    if value is None:
        return None
    if isinstance(kind, pl.List):
        return [convert_to_floats(item, kind.inner) for item in value]
    if isinstance(kind, pl.Struct):
        kinds = {field.name: field.dtype for field in kind.fields}
        return {name: convert_to_floats(item, kinds[name]) for name, item in value.items()}
    return float(value) if kind.is_float() else value


def fits(value: Any, kind: Any) -> bool:
    """Whether a type represents a value exactly.

    Examples
    --------
    >>> fits(2.5, pl.Int64()), fits(300, pl.Int8()), fits({"b": 1}, pl.Struct({"a": pl.Int64()}))
    (False, False, False)
    """
    if value is None:
        return True
    if isinstance(kind, pl.Boolean):
        return isinstance(value, bool)
    if isinstance(kind, pl.String):
        return isinstance(value, str)
    if isinstance(kind, pl.List):
        return isinstance(value, list) and all(fits(item, kind.inner) for item in value)
    if isinstance(kind, pl.Struct):
        fields: Mapping[str, Any] = {field.name: field.dtype for field in kind.fields}
        return isinstance(value, dict) and all(
            name in fields and fits(item, fields[name]) for name, item in value.items()
        )
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    if kind.is_float():
        return is_exact(value)
    least, most = _get_integer_bounds(kind)
    return isinstance(value, int) and least <= value <= most


@cache  # called for every value
def _get_integer_bounds(kind: Any) -> tuple[int, int]:
    least, most = pl.select(least=kind.min(), most=kind.max()).row(0)
    return least, most


def to_arrow_type(kind: Any) -> pa.DataType:
    """Return the Arrow type to parse for a Polars type."""
    if isinstance(kind, pl.String):
        return pa.string()
    if isinstance(kind, pl.Boolean):
        return pa.bool_()
    if isinstance(kind, pl.List):
        return pa.list_(to_arrow_type(kind.inner))
    if isinstance(kind, pl.Struct):
        return pa.struct([(field.name, to_arrow_type(field.dtype)) for field in kind.fields])
    return pa.type_for_alias(str(kind).lower())
