"""Convert Avro schemas to Arrow types and to equivalent schemas that Polars can decode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

#: Header key of the Arrow schema in files of :func:`hyperplane.save`.
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
#: Maximum nesting depth of types; Arrow's C interface supports at most 64.
_MAX_DEPTH = 50
#: Maximum number of types after expanding references. Without it, 2 kB of records that each refer
#: twice to the previous one would expand to millions of types.
_MAX_TYPES = 100_000
#: Numeric types, widest first. A union of them has the widest of its types, and ``double`` for
#: ``float`` with an integer type.
_NUMBERS = ("double", "float", "long", "int")


class UnsupportedAvroSchema(ValueError):
    """An Avro schema that cannot be read as a table."""


class _NamedTypes(dict[str, Any]):
    """Named types of a schema, with a counter of expanded types."""

    converted = 0

    def count(self) -> None:
        """Count an expanded type; raise UnsupportedAvroSchema above the limit."""
        self.converted += 1
        if self.converted > _MAX_TYPES:
            raise UnsupportedAvroSchema(f"its named types expand to more than {_MAX_TYPES} types")


@dataclass(frozen=True)
class AvroField:
    """One field of the records.

    Parameters
    ----------
    name : str
        Its name.
    arrow : pyarrow.DataType
        Its type; string for an enumeration, and for a union of several types other than numbers.
    nullable : bool
        Whether it may be null.
    polars_type : object, optional
        An Avro type of the same encoding that Polars can decode; None if there is none.
    symbols : tuple of str
        The symbols of an enumeration, which is encoded as an index.
    """

    name: str
    arrow: pa.DataType
    nullable: bool
    polars_type: Any
    symbols: tuple[str, ...] = ()


def parse_fields(schema: Any) -> list[AvroField]:
    """Parse the schema of a file into fields.

    Raises
    ------
    UnsupportedAvroSchema
        If it is not a record, is recursive, nested too deeply, or expands to too many types.
    """
    named = _NamedTypes()
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise UnsupportedAvroSchema("its values are not records")
    namespace = _register_name(schema, named, "")
    return [_parse_field(entry, named, namespace) for entry in schema["fields"]]


def _register_name(schema: Any, named: _NamedTypes, namespace: str) -> str:
    """Register a named type; return its namespace."""
    name = schema["name"]
    space = name.rpartition(".")[0] if "." in name else schema.get("namespace", namespace)
    named[name if "." in name or not space else f"{space}.{name}"] = schema
    return str(space or "")


def _parse_field(entry: Any, named: _NamedTypes, namespace: str) -> AvroField:
    branches, nullable = _split_union(_resolve_type(entry["type"], named, namespace))
    name = entry["name"]
    if len(branches) == 1:
        kind = _resolve_type(branches[0], named, namespace)
        if isinstance(kind, dict) and kind["type"] == "enum":
            _register_name(kind, named, namespace)
            polars_type = _replace_branch("int", entry["type"])
            return AvroField(name, pa.string(), nullable, polars_type, tuple(kind["symbols"]))
    arrow, polars_type = _convert_type(entry["type"], named, namespace, ())
    return AvroField(name, arrow, nullable or pa.types.is_null(arrow), polars_type)


def _replace_branch(kind: Any, union: Any) -> Any:
    """Return the type, or the union with its non-null branch replaced by the type.

    None unless the union has two branches, as Polars requires.
    """
    if not isinstance(union, list):
        return kind
    return [branch if branch == "null" else kind for branch in union] if len(union) == 2 else None


def _split_union(kind: Any) -> tuple[list[Any], bool]:
    if not isinstance(kind, list):
        return [kind], kind == "null"
    return [branch for branch in kind if branch != "null"], "null" in kind


def _resolve_type(kind: Any, named: _NamedTypes, namespace: str) -> Any:
    if isinstance(kind, str) and kind not in _PRIMITIVES:
        full = kind if kind in named else f"{namespace}.{kind}"
        if full not in named:
            raise UnsupportedAvroSchema(f"its type {kind!r} is not defined")
        return named[full]
    if isinstance(kind, dict) and isinstance(kind["type"], dict):
        return _resolve_type(kind["type"], named, namespace)
    return kind


def _convert_type(
    declared: Any, named: _NamedTypes, namespace: str, within: tuple[int, ...]
) -> tuple[pa.DataType, Any]:
    """Return the Arrow type, and the type for Polars or None."""
    named.count()
    kind = _resolve_type(declared, named, namespace)
    if isinstance(kind, list):
        return _convert_union(kind, named, namespace, within)
    if isinstance(kind, str):
        return _PRIMITIVES[kind], None if kind == "null" else kind
    if id(kind) in within:
        raise UnsupportedAvroSchema(f"its record {kind['name']!r} contains itself")
    if len(within) >= _MAX_DEPTH:
        raise UnsupportedAvroSchema(f"its types are nested more than {_MAX_DEPTH} levels deep")
    return _convert_complex(kind, named, namespace, (*within, id(kind)))


def _convert_union(
    kind: list[Any], named: _NamedTypes, namespace: str, within: tuple[int, ...]
) -> tuple[pa.DataType, Any]:
    branches, _ = _split_union(kind)
    converted = [_convert_type(branch, named, namespace, within) for branch in branches]
    if len(branches) == 1:
        arrow, polars_type = converted[0]
        return arrow, None if polars_type is None else _replace_branch(polars_type, kind)
    if not branches:
        return pa.null(), None
    if all(isinstance(branch, str) and branch in _NUMBERS for branch in branches):
        widest = next(branch for branch in _NUMBERS if branch in branches)
        exact = widest != "float" or not {"int", "long"} & set(branches)
        return _PRIMITIVES[widest if exact else "double"], None
    return pa.string(), None


def _convert_complex(
    kind: Any, named: _NamedTypes, namespace: str, within: tuple[int, ...]
) -> tuple[pa.DataType, Any]:
    base, logical = kind["type"], kind.get("logicalType")
    if base == "record":
        return _convert_record(kind, named, namespace, within)
    if base == "array":
        arrow, polars_type = _convert_type(kind["items"], named, namespace, within)
        return pa.list_(arrow), None if polars_type is None else {
            "type": "array",
            "items": polars_type,
        }
    if base == "map":
        return pa.map_(
            pa.string(), _convert_type(kind["values"], named, namespace, within)[0]
        ), None
    if base in ("fixed", "enum"):
        _register_name(kind, named, namespace)
    if base == "enum":
        return pa.string(), None
    if logical == "decimal" and base in ("bytes", "fixed"):
        if kind["precision"] > 38:
            raise UnsupportedAvroSchema("it has a decimal of more than 38 digits")
        return pa.decimal128(kind["precision"], kind.get("scale", 0)), kind
    if base == "fixed":
        return pa.binary(), None if logical else kind
    if (base, logical) in _LOGICAL:
        # Polars does not support nanoseconds, but can decode them as longs.
        polars_type = "long" if "nanos" in logical else {"type": base, "logicalType": logical}
        return _LOGICAL[base, logical], polars_type
    return _PRIMITIVES[base], base if base != "null" else None


def _convert_record(
    kind: Any, named: _NamedTypes, namespace: str, within: tuple[int, ...]
) -> tuple[pa.DataType, Any]:
    inner = _register_name(kind, named, namespace)
    arrows, polars_types = [], []
    for entry in kind["fields"]:
        arrow, polars_type = _convert_type(entry["type"], named, inner, within)
        arrows.append((entry["name"], arrow))
        # Nanoseconds inside a record would not be converted back from longs.
        nanos = pa.types.is_timestamp(arrow) and arrow.unit == "ns"
        polars_types.append(None if nanos else polars_type)
    if any(polars_type is None for polars_type in polars_types):
        return pa.struct(arrows), None
    fields = [
        {"name": name, "type": polars_type}
        for (name, _), polars_type in zip(arrows, polars_types, strict=True)
    ]
    return pa.struct(arrows), {"type": "record", "name": f"r{len(named)}", "fields": fields}
