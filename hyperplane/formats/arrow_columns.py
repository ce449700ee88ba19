"""Columns of Avro and ORC files, from the Arrow schemas of the files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from hyperplane.core.errors import check
from hyperplane.formats import column_types, hive_partitions, schemas
from hyperplane.formats.column_mapping import ColumnMapping, choose_any_column, may_lose
from hyperplane.formats.filters import Filters, list_filter_columns
from hyperplane.formats.request import ReadRequest
from hyperplane.objectstore.locations import File

Kinds = dict[str, pl.DataType]


@dataclass(frozen=True)
class SchemaGroup:
    """Files that have the same schema.

    Parameters
    ----------
    schema : pyarrow.Schema
        The schema.
    files : list of File
        At least one file.
    """

    schema: pa.Schema
    files: list[File]


@dataclass(frozen=True)
class ArrowColumns:
    """The columns that a request reads from files with Arrow schemas.

    Parameters
    ----------
    chosen, filter_schema : dict of str to polars.DataType
        The requested columns, and the columns that the filters use.
    filters : Filters
        Row filters.
    optional : set of str
        Requested columns that may have missing values.
    mappings : mapping of File to ColumnMapping
        The conversion of the columns of each file.
    """

    chosen: Kinds
    filter_schema: Kinds
    filters: Filters
    optional: set[str]
    mappings: Mapping[File, ColumnMapping]


def resolve_columns(groups: Sequence[SchemaGroup], request: ReadRequest) -> ArrowColumns:
    """Merge the schemas of all files, and select the requested columns.

    Raises
    ------
    RequestError
        If the schemas differ, or the request does not match them.
    """
    file_schemas = []
    faults = []
    for group in groups:
        first, *others = [file.url for file in group.files]
        file_schema, schema_faults = schemas.make_file_schema(group.schema, request.decimals, first)
        file_schema.urls.extend(others)
        file_schemas.append(file_schema)
        faults += schema_faults
    check(faults)
    columns, faults = schemas.merge_schemas(file_schemas, request.schema_mode)
    check(faults)
    paths = [file.path for group in groups for file in group.files]
    keys, key_types, partial_keys = hive_partitions.parse_hive_keys(paths, columns)
    columns = {**columns, **key_types}
    filters, chosen = request.resolve(columns, list(columns))
    filter_schema = {name: columns[name] for name in list_filter_columns(filters)}
    check(schemas.find_unreadable_columns(file_schemas, {**chosen, **filter_schema}))
    mappings = {}
    for group, file_schema in zip(groups, file_schemas, strict=True):
        any_column = choose_any_column(file_schema.kinds, file_schema.unreadable)
        by_keys: dict[hive_partitions.PartitionKeys, ColumnMapping] = {}
        for file in group.files:
            constants = keys.get(file.path, ())
            if constants not in by_keys:
                by_keys[constants] = _make_mapping(
                    group.schema, dict(constants), chosen, filter_schema, any_column
                )
            mappings[file] = by_keys[constants]
    optional = {name for name in chosen if name not in key_types and _is_nullable(name, groups)}
    optional |= partial_keys.intersection(chosen)
    return ArrowColumns(chosen, filter_schema, filters, optional, mappings)


def group_by_schema(files: Sequence[File], file_schemas: Sequence[pa.Schema]) -> list[SchemaGroup]:
    """Group files by schema, in order of appearance."""
    groups: dict[pa.Schema, SchemaGroup] = {}
    for file, schema in zip(files, file_schemas, strict=True):
        groups.setdefault(schema, SchemaGroup(schema, [])).files.append(file)
    return list(groups.values())


def _make_mapping(
    schema: pa.Schema,
    constants: Mapping[str, Any],
    chosen: Kinds,
    filter_schema: Kinds,
    any_column: str | None,
) -> ColumnMapping:
    used = {**chosen, **filter_schema}
    file_types = {
        field.name: column_types.from_arrow(field.type) for field in schema if field.name in used
    }
    cast = frozenset(name for name, kind in used.items() if file_types.get(name, kind) != kind)
    absent = {name: constants.get(name) for name in used if name not in file_types}
    return ColumnMapping(
        tuple(chosen.items()),
        tuple(filter_schema.items()),
        cast,
        tuple(absent.items()),
        lossy=frozenset(name for name in cast if may_lose(file_types[name], used[name])),
        any_column=any_column,
    )


def _is_nullable(name: str, groups: Sequence[SchemaGroup]) -> bool:
    """Whether a column is absent or may be null in some file."""
    indexes = [group.schema.get_field_index(name) for group in groups]
    return any(
        index < 0 or group.schema.field(index).nullable
        for index, group in zip(indexes, groups, strict=True)
    )
