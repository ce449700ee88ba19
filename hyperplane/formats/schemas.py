"""Merge the schemas of files, and report their differences."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import polars as pl
import pyarrow as pa

from hyperplane.core.errors import Fault
from hyperplane.formats import column_types

#: Whether files with different columns are an error, or their columns are merged.
SchemaMode = Literal["strict", "union"]
#: Maximum number of files that a fault names.
_MAX_NAMED_FILES = 3
#: Names of unnamed indexes that pandas and Dask write to Parquet.
_UNNAMED_INDEX = re.compile(r"__index_level_\d+__|__null_dask_index__")


@dataclass(frozen=True)
class FileSchema:
    """The schema of files with the same columns.

    Parameters
    ----------
    kinds : dict of str to polars.DataType
        The types of the columns in the data set.
    untyped : frozenset of str
        Columns of the type null, and those of ``unreadable``; both match any type.
    urls : list of str
        The files.
    unreadable : dict of str to Fault
        Columns of types that Polars does not support, with the fault if they are requested.
    """

    kinds: Mapping[str, pl.DataType]
    untyped: frozenset[str]
    urls: list[str]
    unreadable: Mapping[str, Fault] = field(default_factory=dict)


#: Advice about differences that this mode accepts.
_UNION = 'schema="union" fills missing columns and widens numbers and times'


def list_some_files(urls: Sequence[str]) -> str:
    """Return the first URLs, and the number of the others.

    Examples
    --------
    >>> list_some_files(["a.csv", "b.csv"]), list_some_files(list("abcde"))
    ('a.csv, b.csv', 'a, b, c and 2 more')
    """
    more = len(urls) - _MAX_NAMED_FILES
    return ", ".join(urls[:_MAX_NAMED_FILES]) + (f" and {more} more" if more > 0 else "")


def is_unnamed_index(name: str) -> bool:
    """Whether a column of a Parquet file is an unnamed index.

    Examples
    --------
    >>> is_unnamed_index("__null_dask_index__"), is_unnamed_index("__index_level_0__")
    (True, True)
    """
    return _UNNAMED_INDEX.fullmatch(name) is not None


def make_file_schema(
    schema: pa.Schema,
    decimals: column_types.Decimals,
    url: str,
    interval_columns: Collection[str] = (),
) -> tuple[FileSchema, list[Fault]]:
    """Return the schema of one file, and a fault for each duplicate column name.

    ``interval_columns`` are columns that contain month intervals, also inside lists and structs.
    """
    kinds: dict[str, pl.DataType] = {}
    unreadable: dict[str, Fault] = {}
    faults = []
    for entry in schema:
        if entry.name in kinds:
            twice = f"{entry.name!r} twice"
            advice = "rename one, as with pyarrow.parquet.read_table(...).rename_columns"
            faults.append(Fault(url, twice, "unique column names", advice))
        try:
            # pyarrow reads nested intervals as bytes; Polars cannot open the file.
            nested = entry.type.num_fields and entry.name in interval_columns
            kind = pa.month_day_nano_interval() if nested else entry.type
            kinds[entry.name] = column_types.to_polars(kind, decimals)
        except (ValueError, pa.ArrowException, pl.exceptions.PolarsError) as error:
            kinds[entry.name] = pl.Null()  # an error only if the column is requested
            unreadable[entry.name] = Fault(
                url,
                f"{entry.name}: {entry.type}",
                f"a supported type ({error})",
                "or select other columns with columns=",
            )
    untyped = {entry.name for entry in schema if pa.types.is_null(entry.type)}
    return FileSchema(kinds, frozenset(untyped.union(unreadable)), [url], unreadable), faults


def find_unreadable_columns(
    file_schemas: Iterable[FileSchema], names: Collection[str]
) -> list[Fault]:
    """Return the faults of requested columns whose types Polars does not support."""
    return [
        file_schema.unreadable[name]
        for file_schema in file_schemas
        for name in names
        if name in file_schema.unreadable
    ]


def merge_schemas(
    file_schemas: Sequence[FileSchema], schema_mode: SchemaMode
) -> tuple[dict[str, pl.DataType], list[Fault]]:
    """Return the columns of the data set in order of appearance, and all differences.

    Parameters
    ----------
    file_schemas : sequence of FileSchema
        The different schemas.
    schema_mode : {"strict", "union"}
        Whether all must be equal, or may lack columns and have narrower types. An unnamed index
        may always be absent, and is left out if its types differ.
    """
    kinds: dict[str, pl.DataType] = {}
    origin: dict[str, FileSchema] = {}
    faults: list[Fault] = []
    conflicting = set()
    for file_schema in file_schemas:
        for name, kind in file_schema.kinds.items():
            if name not in kinds:
                kinds[name], origin[name] = kind, file_schema
                strict = schema_mode == "strict" and not is_unnamed_index(name)
                if file_schema is not file_schemas[0] and strict:
                    faults.append(
                        _make_difference_fault(
                            file_schema, name, f"{kind}", "no such column", file_schemas[0]
                        )
                    )
                continue
            if name in file_schema.untyped:
                continue
            if name in origin[name].untyped:
                kinds[name], origin[name] = kind, file_schema
                continue
            wide = column_types.merge_nested_types(kinds[name], kind)
            widest = column_types.find_wider_type(kinds[name], kind)
            if schema_mode == "union":
                wide = wide or widest
            if wide is None and is_unnamed_index(name):
                conflicting.add(name)
            elif wide is None:
                first_schema = origin[name]
                faults.append(
                    _make_difference_fault(
                        file_schema,
                        name,
                        f"{kind}",
                        f"{kinds[name]}",
                        first_schema,
                        _UNION if widest else _advise_on_zones(name, kind, kinds[name]),
                    )
                )
            else:
                kinds[name] = wide
        if schema_mode == "strict":
            needed = [name for name in file_schemas[0].kinds if not is_unnamed_index(name)]
            absent = [name for name in needed if name not in file_schema.kinds]
            faults += [
                _make_difference_fault(
                    file_schema, n, "no such column", f"{kinds[n]}", file_schemas[0]
                )
                for n in absent
            ]
    return {name: kind for name, kind in kinds.items() if name not in conflicting}, faults


def _make_difference_fault(
    file_schema: FileSchema,
    name: str,
    actual: str,
    expected: str,
    reference: FileSchema,
    advice: str = _UNION,
) -> Fault:
    where = list_some_files(file_schema.urls)
    return Fault(where, f"{name}: {actual}", f"{expected}, as in {reference.urls[0]}", advice)


def _advise_on_zones(name: str, actual: pl.DataType, expected: pl.DataType) -> str:
    """Return what to do about times of different zones; empty for other types."""
    if not (isinstance(actual, pl.Datetime) and isinstance(expected, pl.Datetime)):
        return ""
    zone = expected.time_zone or actual.time_zone
    call = "tz_convert" if expected.time_zone and actual.time_zone else "tz_localize"
    convert = f"df.assign({name}=df[{name!r}].dt.{call}({zone!r}))"
    return f"read the files of each zone separately, and convert the times, as with {convert}"
