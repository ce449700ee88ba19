"""Avro schemas: the Arrow types of their fields, and what Polars can decode by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

#: Of the header of a file: the schema of Arrow, in files of :func:`hyperplane.save`.
ARROW_SCHEMA = "hyperplane.arrow"
_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
#: Levels of types within types; Arrow hands on no more than 64.
_DEEPEST = 50
#: Types in all fields, with each reference to a named type counted as that type: records of two
#: references each to the record before make millions of a schema of 2 kB.
_MOST = 100_000
#: Widest first: a union of numbers is as wide as its widest.
_NUMBERS = ("double", "float", "long", "int")


class Unsupported(ValueError):
    """A schema that no table can have."""


class _NamedTypes(dict[str, Any]):
    """The types of a schema by name, and how many types have been made of it."""

    made = 0

    def count(self) -> None:
        """Count one more type that is made."""
        self.made += 1
        if self.made > _MOST:
            raise Unsupported(f"its types refer to each other, which makes more than {_MOST} types")


@dataclass(frozen=True)
class Field:
    """One field of the records.

    Parameters
    ----------
    name : str
        Its name.
    arrow : pyarrow.DataType
        Its type; text for a union of several types and for an enumeration.
    nullable : bool
        Whether it may be null.
    written : object, optional
        A type written in the same bytes that Polars can decode; None when there is none.
    symbols : tuple of str
        The words of an enumeration, which is written as a number.
    """

    name: str
    arrow: pa.DataType
    nullable: bool
    written: Any
    symbols: tuple[str, ...] = ()


def fields(schema: Any) -> list[Field]:
    """The fields of a schema as it is stored in a file.

    Raises
    ------
    Unsupported
        When it is not a record, holds a record within itself, or makes too many types.
    """
    named = _NamedTypes()
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise Unsupported("its values are no records")
    namespace = _remember(schema, named, "")
    return [_field(entry, named, namespace) for entry in schema["fields"]]


def _remember(schema: Any, named: _NamedTypes, namespace: str) -> str:
    """Note a type that has a name; its namespace."""
    name = schema["name"]
    space = name.rpartition(".")[0] if "." in name else schema.get("namespace", namespace)
    named[name if "." in name or not space else f"{space}.{name}"] = schema
    return str(space or "")


def _field(entry: Any, named: _NamedTypes, namespace: str) -> Field:
    branches, nullable = _branches(_resolved(entry["type"], named, namespace))
    name = entry["name"]
    if len(branches) == 1:
        kind = _resolved(branches[0], named, namespace)
        if isinstance(kind, dict) and kind["type"] == "enum":
            _remember(kind, named, namespace)
            written = _as_written("int", entry["type"])
            return Field(name, pa.string(), nullable, written, tuple(kind["symbols"]))
    arrow, written = _type(entry["type"], named, namespace, ())
    return Field(name, arrow, nullable or pa.types.is_null(arrow), written)


def _as_written(kind: Any, union: Any) -> Any:
    """A type in the place of the one that is not null in a union."""
    if not isinstance(union, list):
        return kind
    return [one if one == "null" else kind for one in union] if len(union) == 2 else None


def _branches(kind: Any) -> tuple[list[Any], bool]:
    if not isinstance(kind, list):
        return [kind], kind == "null"
    return [one for one in kind if one != "null"], "null" in kind


def _resolved(kind: Any, named: _NamedTypes, namespace: str) -> Any:
    if isinstance(kind, str) and kind not in _PRIMITIVES:
        full = kind if kind in named else f"{namespace}.{kind}"
        if full not in named:
            raise Unsupported(f"its type {kind!r} is not defined")
        return named[full]
    if isinstance(kind, dict) and isinstance(kind["type"], dict):
        return _resolved(kind["type"], named, namespace)
    return kind


def _type(
    given: Any, named: _NamedTypes, namespace: str, within: tuple[int, ...]
) -> tuple[pa.DataType, Any]:
    """The Arrow type, and the type for Polars or None."""
    named.count()
    kind = _resolved(given, named, namespace)
    if isinstance(kind, list):
        return _union(kind, named, namespace, within)
    if isinstance(kind, str):
        return _PRIMITIVES[kind], None if kind == "null" else kind
    if id(kind) in within:
        raise Unsupported(f"its record {kind['name']!r} holds itself")
    if len(within) >= _DEEPEST:
        raise Unsupported(f"its types are nested more than {_DEEPEST} deep")
    return _complex(kind, named, namespace, (*within, id(kind)))


def _union(
    kind: list[Any], named: _NamedTypes, namespace: str, within: tuple[int, ...]
) -> tuple[pa.DataType, Any]:
    branches, _ = _branches(kind)
    made = [_type(one, named, namespace, within) for one in branches]
    if len(branches) == 1:
        arrow, written = made[0]
        return arrow, None if written is None else _as_written(written, kind)
    if not branches:
        return pa.null(), None
    if all(isinstance(one, str) and one in _NUMBERS for one in branches):
        wide = next(one for one in _NUMBERS if one in branches)
        exact = wide != "float" or not {"int", "long"} & set(branches)
        return _PRIMITIVES[wide if exact else "double"], None
    return pa.string(), None


def _complex(
    kind: Any, named: _NamedTypes, namespace: str, within: tuple[int, ...]
) -> tuple[pa.DataType, Any]:
    base, logical = kind["type"], kind.get("logicalType")
    if base == "record":
        return _record(kind, named, namespace, within)
    if base == "array":
        arrow, written = _type(kind["items"], named, namespace, within)
        return pa.list_(arrow), None if written is None else {"type": "array", "items": written}
    if base == "map":
        return pa.map_(pa.string(), _type(kind["values"], named, namespace, within)[0]), None
    if base in ("fixed", "enum"):
        _remember(kind, named, namespace)
    if base == "enum":
        return pa.string(), None
    if logical == "decimal" and base in ("bytes", "fixed"):
        arrow = pa.decimal128(min(38, kind["precision"]), kind.get("scale", 0))
        fast = kind["precision"] <= 38
        if not fast:
            raise Unsupported("a decimal of more than 38 digits")
        return arrow, kind
    if base == "fixed":
        return pa.binary(), None if logical else kind
    if (base, logical) in _LOGICAL:
        # Polars does not know nanoseconds, but they are stored as any other number.
        written = "long" if "nanos" in logical else {"type": base, "logicalType": logical}
        return _LOGICAL[base, logical], written
    return _PRIMITIVES[base], base if base != "null" else None


def _record(
    kind: Any, named: _NamedTypes, namespace: str, within: tuple[int, ...]
) -> tuple[pa.DataType, Any]:
    inner = _remember(kind, named, namespace)
    arrows, writtens = [], []
    for entry in kind["fields"]:
        arrow, written = _type(entry["type"], named, inner, within)
        arrows.append((entry["name"], arrow))
        # Nanoseconds within a record would stay numbers.
        nanos = pa.types.is_timestamp(arrow) and arrow.unit == "ns"
        writtens.append(None if nanos else written)
    if any(written is None for written in writtens):
        return pa.struct(arrows), None
    rows = [
        {"name": name, "type": written} for (name, _), written in zip(arrows, writtens, strict=True)
    ]
    return pa.struct(arrows), {"type": "record", "name": f"r{len(named)}", "fields": rows}
