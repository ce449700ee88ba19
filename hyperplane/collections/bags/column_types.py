"""Column types of ``to_dataframe``: inference, parsing and checking of values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from hyperplane.collections.bags.records import shorten
from hyperplane.core.errors import Fault, WrongType

UTC = "datetime64[us, UTC]"
_ARROW: dict[str, pa.DataType] = {
    "int64": pa.int64(),
    "Int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "datetime64[us]": pa.string(),
    UTC: pa.string(),
}
_TIMESTAMPS = {"datetime64[us]": pa.timestamp("us"), UTC: pa.timestamp("us", tz="UTC")}
#: Integers up to this absolute value are exact as float64.
MAX_EXACT = 2**53
_NULL = type(None)
_ACCEPTED: dict[str, set[type]] = {
    "int64": {int},
    "Int64": {int, _NULL},
    "float64": {int, float, _NULL},
    "bool": {bool},
    "boolean": {bool, _NULL},
    "string": {str, _NULL},
    "datetime64[us]": {str, _NULL},
    UTC: {str, _NULL},
}
_TYPE_NAMES = {
    **{name: name for name in [*_ARROW, "object"]},
    "int": "int64",
    "float": "float64",
    "str": "string",
    "string[pyarrow]": "string",
    "datetime": "datetime64[us]",
}


@dataclass(frozen=True)
class BagColumn:
    """A column: its name, the path of its field, its type, and whether to convert to text."""

    name: str
    path: str
    kind: str
    to_text: bool = False

    @property
    def arrow(self) -> pa.DataType | None:
        """The Arrow type to parse from JSON; None for Python objects."""
        return _ARROW.get(self.kind)


def parse_types(types: Any) -> tuple[dict[str, str], list[Fault]]:
    """Parse ``types`` into type names by column, and faults."""
    if types is None:
        return {}, []
    if not isinstance(types, Mapping):
        return {}, [Fault("types", repr(types)[:80], "a mapping of column names to types")]
    kinds: dict[str, str] = {}
    faults = []
    for name, kind in types.items():
        type_name = _TYPE_NAMES.get(kind.__name__ if isinstance(kind, type) else str(kind))
        if not isinstance(name, str):
            faults.append(Fault("types", repr(name)[:80], "names of columns as text"))
        elif type_name is None:
            allowed = "one of " + ", ".join(_TYPE_NAMES)
            faults.append(Fault(f"types[{name!r}]", repr(kind)[:80], allowed))
        else:
            kinds[name] = type_name
    return kinds, faults


def infer_type(name: str, values: Sequence[Any]) -> str | Fault:
    """Return the type of a column, or a fault if values have several types.

    Examples
    --------
    >>> infer_type("a", [1, None]), infer_type("a", [1, 2.5]), infer_type("a", ["2024-05-01", None])
    ('Int64', 'float64', 'datetime64[us]')
    >>> print(infer_type("id", [1, "x"]))
    types['id'] = numbers such as 1, text such as "x": expected one type; write ...
    """
    present = [value for value in values if value is not None]
    some_null = len(present) < len(values)
    examples: dict[str, Any] = {}
    for value in present:
        examples.setdefault(_name_kind(value), value)
    if set(examples) == {"numbers", "fractions"}:
        return "float64" if all(map(is_exact, present)) else "object"
    if len(examples) > 1:
        mixed_kinds = ", ".join(
            f"{kind_name} such as {as_json(value)}" for kind_name, value in examples.items()
        )
        nested = "lists or mappings" in examples
        advice = f"write types={{{name!r}: {'object' if nested else 'string'!r}}}"
        return Fault(f"types[{name!r}]", mixed_kinds, "one type", advice)
    kind_name = next(iter(examples), "")
    if kind_name == "numbers":
        if any(not -(2**63) <= value < 2**63 for value in present):
            return "object"
        return "Int64" if some_null else "int64"
    if kind_name == "booleans":
        return "boolean" if some_null else "bool"
    if kind_name == "text":
        return _infer_text(present)
    return "float64" if kind_name == "fractions" else "object"


def _name_kind(value: Any) -> str:
    names = {int: "numbers", float: "fractions", bool: "booleans", str: "text"}
    return names.get(type(value), "lists or mappings")


def _infer_text(present: list[str]) -> str:
    try:
        text = pa.array(present, pa.string())
    except UnicodeError:
        return "object"
    for kind, stamp in _TIMESTAMPS.items():
        try:
            text.cast(stamp)
        except pa.ArrowInvalid:
            continue
        return kind
    return "string"


def as_json(value: Any) -> str:
    """Return a value as shortened JSON, for messages."""
    return shorten(json.dumps(value, default=repr, ensure_ascii=False))


def make_array(column: BagColumn, values: list[Any], where: Any) -> Any:
    """Return the values of a column as an Arrow array; unchanged for object columns.

    Missing values are None. A WrongType names the first value that is not of the column's type,
    and its location: ``where(position)`` describes the location of the value at a position.
    """
    if column.arrow is None:
        return values
    if column.to_text:
        values = [_to_text(value) for value in values]
    if not set(map(type, values)) <= _ACCEPTED[column.kind]:
        accepted = _ACCEPTED[column.kind]
        position = next(i for i, value in enumerate(values) if type(value) not in accepted)
        raise make_type_error(column, values[position], where(position))
    if column.kind == "float64":
        position = next((i for i, v in enumerate(values) if v is not None and not is_exact(v)), -1)
        if position >= 0:
            raise make_type_error(column, values[position], where(position))
    try:
        return cast_to_column(column, _build_array(column, values))
    except (pa.ArrowInvalid, OverflowError, UnicodeError):
        position = next(i for i, value in enumerate(values) if not _is_valid(column, value))
        raise make_type_error(column, values[position], where(position)) from None


def is_exact(value: int | float) -> bool:
    """Whether float64 represents the number exactly."""
    if isinstance(value, float) or abs(value) <= MAX_EXACT:
        return True
    try:
        return float(value) == value
    except OverflowError:
        return False


def _to_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, default=str)


def _build_array(column: BagColumn, values: Iterable[Any]) -> pa.Array:
    if column.kind == "float64":  # Arrow rejects some integers that are exact as float64
        values = [None if value is None else float(value) for value in values]
    return pa.array(values, column.arrow)


def cast_to_column(column: BagColumn, values: pa.Array) -> pa.Array:
    """Convert an array of the parsed type to the column's final type."""
    return values.cast(_TIMESTAMPS[column.kind]) if column.kind in _TIMESTAMPS else values


def can_be_null(column: BagColumn) -> bool:
    """Whether the column's type allows missing values."""
    return column.arrow is None or _NULL in _ACCEPTED[column.kind]


def _is_valid(column: BagColumn, value: Any) -> bool:
    try:
        cast_to_column(column, _build_array(column, [value]))
    except (pa.ArrowInvalid, OverflowError, UnicodeError):
        return False
    return True


def make_type_error(column: BagColumn, value: Any, where: str) -> WrongType:
    """Return the error for a value that is not of its column's type."""
    text = as_json(value)
    wider_type = "string"
    if value is None:
        wider_type = {"int64": "Int64", "bool": "boolean"}[column.kind]
    elif isinstance(value, float) and column.kind in ("int64", "Int64"):
        wider_type = "float64"
    elif _name_kind(value) == "lists or mappings" or column.kind in ("string", "float64"):
        wider_type = "object"
    elif type(value) is int and column.kind in ("int64", "Int64"):
        wider_type = "object"  # too large
    message = (
        f"field {column.path!r} of {where} is {text}, but the column's type is {column.kind}; "
        f"write types={{{column.name!r}: {wider_type!r}}}"
    )
    return WrongType(column.name, text, where, message)


def make_series(column: BagColumn, pieces: list[Any]) -> Any:
    """Return a pandas series of all values in ``pieces``: Arrow arrays or lists of objects."""
    import pandas as pd  # slow import, not needed by other functions of bags

    if column.arrow is None:
        values = [value for piece in pieces for value in piece]
        return pd.Series(values, dtype=object)
    kind = _TIMESTAMPS.get(column.kind, column.arrow)
    array = pa.chunked_array(pieces, type=kind)
    nullable: dict[str, Any] = {"Int64": pd.Int64Dtype(), "boolean": pd.BooleanDtype()}
    nullable["string"] = pd.StringDtype("pyarrow")
    if column.kind in nullable:
        return pd.Series(nullable[column.kind].__from_arrow__(array))
    return pd.Series(array.to_pandas(), dtype=column.kind)
