"""Read Parquet files: plan partitions and shards of row groups from the footers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import polars as pl
import pyarrow as pa

from hyperplane.core.errors import Fault, check
from hyperplane.formats import column_types, hive_partitions, schemas
from hyperplane.formats.column_mapping import ColumnMapping, choose_any_column, may_lose
from hyperplane.formats.filters import (
    ColumnStatistics,
    Filters,
    list_filter_columns,
    may_match,
)
from hyperplane.formats.parquet import footers, index_ranges
from hyperplane.formats.parquet.footers import FileLayout, ParquetFooter, StoredRowGroup
from hyperplane.formats.parquet.index_ranges import IndexRange
from hyperplane.formats.parquet.partition import ParquetPartition, RowGroupRange, select_rows
from hyperplane.formats.partition_sizes import group_neighbors
from hyperplane.formats.partitions import Bounds
from hyperplane.formats.request import ReadPlan, ReadRequest
from hyperplane.objectstore.locations import File

Kinds = dict[str, pl.DataType]
Categories = Mapping[str, tuple[str, ...]]


@dataclass
class _SchemaGroup:
    """The files that have the same schema, which includes an index that has no column."""

    number: int
    layout: FileLayout
    schema: pa.Schema
    file_schema: schemas.FileSchema
    index: str | None
    members: list[ParquetFooter] = field(default_factory=list)

    @property
    def use_pyarrow(self) -> bool:
        """Whether pyarrow has to read the files, because Polars cannot open them."""
        return bool(self.layout.interval_columns or self.file_schema.unreadable)

    @property
    def schema_id(self) -> int | None:
        """The number of the group, if its files also have one schema for Polars, else None."""
        # Files with equal date types for pyarrow may differ for Polars, which reads some as times.
        dates = any(pa.types.is_date(kind) for kind in self.schema.types)
        return None if dates else self.number


@dataclass(frozen=True)
class _RowGroup:
    """One row group."""

    footer: ParquetFooter
    schema_group: _SchemaGroup
    mapping: ColumnMapping
    number: int
    start: int
    group: StoredRowGroup

    @property
    def file(self) -> File:
        return self.footer.file

    def statistics(self, name: str, kind: pl.DataType) -> ColumnStatistics | None:
        rows = self.group.rows
        for constant, value in self.mapping.constants:
            if constant == name:
                return ColumnStatistics(value, value, 0 if value is not None else rows, rows)
        # Lossy casts must raise when read, so their row groups are never pruned. The statistics
        # of UUIDs are bytes, but their values are text.
        if kind.is_nested() or name in self.mapping.lossy | self.mapping.uuids:
            return None
        if name == self.schema_group.index and isinstance(self.footer.index, IndexRange):
            return self.footer.index.statistics(self.start, rows)
        leaves = self.schema_group.layout.leaves[name]
        if len(leaves) > 1:
            return None
        stored_type = self.schema_group.schema.field(name).type
        return footers.get_statistics(self.group, leaves[0], kind, stored_type)

    def estimate_memory(self, names: Iterable[str]) -> dict[str, int]:
        """Return the estimated bytes in memory of columns."""
        leaves, chunks = self.schema_group.layout.leaves, self.group.chunks
        sizes = {name: sum(chunks[leaf].memory for leaf in leaves.get(name, ())) for name in names}
        if self.schema_group.index in sizes:
            sizes[self.schema_group.index] += 8 * self.group.rows
        return sizes


def plan_partitions(files: Sequence[File], request: ReadRequest) -> ReadPlan:
    """Read the footers of the files and plan the partitions.

    Raises
    ------
    RequestError
        If the schemas differ, or the request does not match them.
    ReadError
        If a footer is invalid and ``on_error`` is not "skip".
    """
    footers_read, errors = footers.read_footers(files, request.list_names())
    request.raise_or_warn(errors, len(footers_read))
    indexes = [(footer.file.url, footer.rows, footer.index) for footer in footers_read]
    index_ranges.warn_lost_ranges(indexes, request.columns)
    schema_groups = _group_by_schema(footers_read, request.decimals)
    columns, faults = schemas.merge_schemas(
        [schema_group.file_schema for schema_group in schema_groups], request.schema_mode
    )
    check(faults)
    keys, key_types, partial_keys = hive_partitions.parse_hive_keys(
        [footer.file.path for footer in footers_read], columns
    )
    columns = {**columns, **key_types}
    filters, chosen = request.resolve(columns, _list_default_columns(columns))
    filter_schema = {name: columns[name] for name in list_filter_columns(filters)}
    check(_find_unreadable(schema_groups, {**chosen, **filter_schema}))
    categories = _read_categories(footers_read, schema_groups, chosen)
    row_groups = []
    for schema_group in schema_groups:
        mappings: dict[Any, ColumnMapping] = {}
        for footer in schema_group.members:
            constants = keys.get(footer.file.path, ())
            if constants not in mappings:
                mappings[constants] = _make_mapping(
                    schema_group, dict(constants), chosen, filter_schema, categories
                )
            row_groups += _list_row_groups(footer, schema_group, mappings[constants])
    order = {id(footer): position for position, footer in enumerate(footers_read)}
    row_groups.sort(key=lambda row_group: (order[id(row_group.footer)], row_group.number))
    optional = {
        name for name in chosen if _is_optional(name, chosen[name], schema_groups, key_types)
    }
    optional |= partial_keys.intersection(chosen)
    matching = [
        row_group for row_group in row_groups if _may_match(row_group, filters, filter_schema)
    ]
    used = {**chosen, **filter_schema}
    sizes = {id(row_group): row_group.estimate_memory(used) for row_group in matching}
    matching_sizes = [sum(sizes[id(row_group)][name] for name in chosen) for row_group in matching]
    bounded = {
        name: kind
        for name, kind in chosen.items()
        if kind.is_integer() or isinstance(kind, pl.Datetime)
    }
    groups = group_neighbors(
        matching, matching_sizes, request.partition_size, request.files(matching)
    )
    parts = []
    for group in groups:
        column_sizes = {name: sum(sizes[id(each)][name] for each in group) for name in used}
        parts.append(
            ParquetPartition(
                tuple(_merge_row_groups(group)),
                filters,
                sum(column_sizes[name] for name in chosen),
                request.on_error,
                _find_bounds(group, bounded),
                column_sizes,
                request.partition_size,
            )
        )
    parts = parts or [_make_empty_partition(schema_groups[0], chosen, filter_schema, filters)]
    return ReadPlan(parts, chosen, optional, categories)


def plan_shard(files: Sequence[File], request: ReadRequest, index: int, count: int) -> ReadPlan:
    """Plan the rows of a shard, as ``numpy.array_split`` divides those of all files."""
    row_groups = plan_partitions(files, replace(request, partition_size=1))
    part = select_rows(cast(Sequence[ParquetPartition], row_groups.parts), index, count)
    return replace(row_groups, parts=[part] if part else [])


def _group_by_schema(
    footers_read: Sequence[ParquetFooter], decimals: column_types.Decimals
) -> list[_SchemaGroup]:
    schema_groups: list[_SchemaGroup] = []
    faults = []
    for footer in footers_read:
        layout = footer.layout
        index = footer.index.name if isinstance(footer.index, IndexRange) else None
        # Files of one writer follow each other, so the newest group is the most probable one.
        alike = (group for group in reversed(schema_groups) if group.index == index)
        schema_group = next((group for group in alike if group.layout.equals(layout)), None)
        if schema_group is None:
            schema = layout.schema
            if index is not None:
                schema = schema.append(pa.field(index, pa.int64(), nullable=False))
            file_schema, schema_faults = schemas.make_file_schema(
                schema, decimals, footer.file.url, layout.interval_columns
            )
            faults += schema_faults
            schema_group = _SchemaGroup(len(schema_groups), layout, schema, file_schema, index)
            schema_groups.append(schema_group)
        else:
            schema_group.file_schema.urls.append(footer.file.url)
        schema_group.members.append(footer)
    check(faults)
    return schema_groups


def _find_unreadable(schema_groups: Sequence[_SchemaGroup], names: Kinds) -> list[Fault]:
    """Return faults for requested columns of unsupported types, such as pandas periods."""
    return schemas.find_unreadable_columns(
        (schema_group.file_schema for schema_group in schema_groups), names
    ) + [
        Fault(
            schema_group.members[0].file.url,
            f"{field.name}: {field.type.extension_name.removeprefix('pandas.')}",
            "a column of a type that Polars supports",
            "read it with hyperplane.load or dask.dataframe.read_parquet, or select other "
            "columns with columns=",
        )
        for schema_group in schema_groups
        for field in schema_group.schema
        if field.name in names and column_types.is_pandas_extension(field.type)
    ]


def _list_default_columns(columns: Kinds) -> list[str]:
    """Return all columns except the unnamed index of pandas and Dask."""
    return [name for name in columns if not schemas.is_unnamed_index(name)]


def _read_categories(
    footers_read: Sequence[ParquetFooter], schema_groups: Sequence[_SchemaGroup], chosen: Kinds
) -> Categories:
    """Return the ordered categories of columns that have the same ones in all files."""
    everywhere = [
        footers.find_ordered_categories(schema_group.schema) for schema_group in schema_groups
    ]
    return footers.read_categories(footers_read, set(chosen).intersection(*everywhere))


def _make_mapping(
    schema_group: _SchemaGroup,
    constants: Mapping[str, Any],
    chosen: Kinds,
    filter_schema: Kinds,
    categories: Categories,
) -> ColumnMapping:
    used = {**chosen, **filter_schema}
    file_types = schema_group.file_schema.kinds
    excluded = {*schema_group.file_schema.unreadable, schema_group.index}
    absent = {name: constants.get(name) for name in used if name not in file_types}
    cast = frozenset(
        name
        for name, kind in used.items()
        if name in file_types and not _is_unchanged(schema_group.schema.field(name).type, kind)
    )
    return ColumnMapping(
        tuple(chosen.items()),
        tuple(filter_schema.items()),
        cast,
        tuple(absent.items()),
        tuple(categories.items()),
        frozenset(name for name in cast if may_lose(file_types[name], used[name])),
        frozenset(
            name for name in cast if column_types.is_uuid(schema_group.schema.field(name).type)
        ),
        choose_any_column(file_types, excluded),
    )


def _is_unchanged(arrow: pa.DataType, kind: pl.DataType) -> bool:
    # The width of stored dates may differ from the schema of the file.
    return not pa.types.is_date(arrow) and column_types.from_arrow(arrow) == kind


def _list_row_groups(
    footer: ParquetFooter, schema_group: _SchemaGroup, mapping: ColumnMapping
) -> list[_RowGroup]:
    row_groups, start = [], 0
    for number, group in enumerate(footer.row_groups):
        if group.rows:
            row_groups.append(_RowGroup(footer, schema_group, mapping, number, start, group))
        start += group.rows
    return row_groups


def _may_match(row_group: _RowGroup, filters: Filters, filter_schema: Kinds) -> bool:
    return may_match(filters, lambda name: row_group.statistics(name, filter_schema[name]))


def _is_optional(
    name: str, kind: pl.DataType, schema_groups: Sequence[_SchemaGroup], key_types: Kinds
) -> bool:
    if not (kind.is_integer() or isinstance(kind, pl.Boolean)):
        return True
    for schema_group in schema_groups:
        if name == schema_group.index:
            continue
        if name not in schema_group.layout.leaves:
            if name not in key_types:
                return True
            continue
        leaf = schema_group.layout.leaves[name][0]
        if schema_group.schema.field(name).nullable and any(
            footers.may_have_nulls(footer, leaf) for footer in schema_group.members
        ):
            return True
    return False


def _merge_row_groups(group: Sequence[_RowGroup]) -> list[RowGroupRange]:
    """Merge consecutive row groups of one file into ranges."""
    runs: list[list[_RowGroup]] = []
    for row_group in group:
        last = runs[-1][-1] if runs else None
        if (
            last is not None
            and last.footer is row_group.footer
            and _get_end_row(last) == row_group.start
        ):
            runs[-1].append(row_group)
        else:
            runs.append([row_group])
    return [_make_range(run) for run in runs]


def _get_end_row(row_group: _RowGroup) -> int:
    return int(row_group.start + row_group.group.rows)


def _make_range(run: Sequence[_RowGroup]) -> RowGroupRange:
    first, rows = run[0], _get_end_row(run[-1]) - run[0].start
    whole = rows == first.footer.rows
    numbers = tuple(row_group.number for row_group in run)
    schema_group = first.schema_group
    return RowGroupRange(
        first.footer.file,
        numbers,
        first.start,
        rows,
        whole,
        schema_group.schema_id,
        first.mapping,
        schema_group.use_pyarrow,
        _get_requested_index(first.footer, first.mapping),
    )


def _get_requested_index(footer: ParquetFooter, mapping: ColumnMapping) -> IndexRange | None:
    """Return the index in the metadata of a file if it is requested, else None."""
    if not isinstance(footer.index, IndexRange):
        return None
    used = dict([*mapping.schema, *mapping.filter_schema])
    return footer.index if footer.index.name in used else None


def _make_empty_partition(
    schema_group: _SchemaGroup, chosen: Kinds, filter_schema: Kinds, filters: Filters
) -> ParquetPartition:
    """Return a partition without rows, because a data set needs at least one."""
    mapping = _make_mapping(schema_group, {}, chosen, filter_schema, {})
    footer, use_pyarrow = schema_group.members[0], schema_group.use_pyarrow
    index = _get_requested_index(footer, mapping)
    piece = RowGroupRange(footer.file, (), 0, 0, False, None, mapping, use_pyarrow, index)
    return ParquetPartition((piece,), filters, 0)


def _find_bounds(group: Sequence[_RowGroup], kinds: Kinds) -> dict[str, Bounds]:
    """Return minimum and maximum of columns, where known."""
    known = {}
    for name, kind in kinds.items():
        lows, highs = [], []
        for row_group in group:
            entry = row_group.statistics(name, kind)
            if entry is None:
                break
            if entry.nulls is not None and entry.nulls >= entry.rows:
                continue
            if entry.low is None:
                break
            lows.append(entry.low)
            highs.append(entry.high)
        else:
            if lows:
                known[name] = (min(lows), max(highs))
    return known
