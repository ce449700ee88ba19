"""``to_dataframe``: records as rows, with inferred and checked types."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dask.config
from dask.bag import Bag
from dask.base import tokenize

from hyperplane.collections.bags.column_types import (
    BagColumn,
    infer_type,
    parse_types,
)
from hyperplane.collections.bags.fields import MISSING, FieldGetter, parse_fields
from hyperplane.collections.bags.graph import BagSource, find_bag_faults, get_bag_source
from hyperplane.collections.bags.partition_frames import DataFrameReader, make_arrays, make_frame
from hyperplane.collections.bags.take import compute_heads, make_heads
from hyperplane.core.argument_checks import find_flag_faults
from hyperplane.core.dask_internals.tasks import Task, TaskRef
from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import check_call
from hyperplane.core.units import plural, whole_number

if TYPE_CHECKING:
    import pandas as pd
    from dask import dataframe as dd

#: Number of partitions whose first records are sampled.
SAMPLED_PARTITIONS = 4


@check_call
def to_dataframe(
    bag: Bag,
    *,
    fields: Iterable[str] | Mapping[str, str] | None = None,
    types: Mapping[str, Any] | None = None,
    sample: int = 1000,
    flatten: bool = False,
) -> dd.DataFrame:
    """Convert a bag of records to a Dask dataframe with inferred and checked types.

    The types are inferred from the first records of up to four partitions, which are read
    **immediately**; the rest is lazy. During the computation each value is checked: one that is
    not of its column's type raises :class:`~hyperplane.errors.WrongType`, which names the field,
    the value, its file and line (or its partition), and the ``types=`` to pass.

    ================================  =====================================================
    values in the sample              type of the column
    ================================  =====================================================
    whole numbers                     int64; Int64 if some are null or missing
    whole numbers and fractions       float64, null is NaN
    true, false                       bool; boolean if some are null or missing
    ISO dates and times               datetime64[us]; with a zone, datetime64[us, UTC]
    other text                        string (Arrow), null is NA
    lists, mappings, only nulls       object: Python objects, not checked
    numbers that these cannot hold    object
    ================================  =====================================================

    Anything else, such as numbers and text in one field, is an error unless ``types`` sets it.

    Parameters
    ----------
    bag : dask.bag.Bag
        Records that are mappings.
    fields : list of str or mapping of str to str, optional
        Paths of fields, or a mapping of column names to paths, as in :func:`select`. By default
        all fields of the sample, in order of appearance. A field that no record of the sample
        has is an error, unless both ``fields`` and ``types`` name it.
    types : mapping of str to str, optional
        Types of some columns, one of those above. ``"string"`` also converts values that are
        not text: 5 becomes ``"5"``, lists and mappings become JSON.
    sample : int
        Number of records in the sample, from 1, divided equally among the sampled partitions.
    flatten : bool
        Whether a nested mapping becomes a column for each of its fields, such as ``"user.id"``.

    Returns
    -------
    dask.dataframe.DataFrame
        One partition for each partition of the bag, each with an index from 0.

    Raises
    ------
    RequestError
        With every invalid argument and every field with values of several types.
    WrongType
        When it is computed, for a value that is not of its column's type.
    BadLines, ReadError
        At the call, which reads the sample, or when it is computed, as for :func:`read_records`.

    Examples
    --------
    >>> import dask.bag as db
    >>> bag = db.from_sequence([{"id": 7, "at": "2024-05-01"}, {"id": None, "at": "2024-05-02"}])
    >>> frame = to_dataframe(bag)
    >>> print(frame.dtypes.to_string())
    id             Int64
    at    datetime64[us]
    >>> frame.at.max().compute(scheduler="sync")
    Timestamp('2024-05-02 00:00:00')
    """
    from dask import dataframe as dd  # slow import, not needed by other functions of bags

    selection, faults = parse_fields(fields)
    types_by_name, type_faults = parse_types(types)
    faults += type_faults
    count = whole_number(sample)
    if count is None or count < 1:
        faults.append(Fault("sample", repr(sample)[:80], "a whole number from 1"))
    faults += find_bag_faults(bag) + find_flag_faults(flatten=flatten)
    check(faults)
    records = _read_sample(bag, min(count or 1, sys.maxsize))
    pairs = selection.pairs if selection else _infer_pairs(records, flatten, types_by_name)
    if selection:
        check(
            _find_absent_fields(
                records, [pair for pair in pairs if pair[0] not in types_by_name], "fields"
            )
        )
    columns = _decide_columns(pairs, types_by_name, records)
    meta = make_frame(columns, [[] for _ in columns])
    source = get_bag_source(bag)
    file_columns = _resolve_paths(columns, source)
    if source is not None and file_columns is not None:
        token = tokenize(source.token, source.where, file_columns)
        read = DataFrameReader(source.settings, source.where, file_columns, token)
        # Otherwise Dask converts all object columns to text, including lists and mappings.
        with dask.config.set({"dataframe.convert-string": False}):
            return dd.from_map(read, source.parts, meta=meta, enforce_metadata=False)
    if not bag.npartitions:
        return dd.from_pandas(meta, npartitions=1)
    return _build_from_bag(bag, columns, meta)


def _resolve_paths(
    columns: list[BagColumn], source: BagSource | None
) -> tuple[BagColumn, ...] | None:
    """Return the columns with their paths in the files; None if one is not a field of a line."""
    if source is None or source.settings.kind != "json":
        return None
    if source.fields is None:
        return tuple(columns)
    paths = dict(source.fields.pairs)
    if not all(column.path in paths for column in columns):
        return None
    return tuple(replace(column, path=paths[column.path]) for column in columns)


def _build_from_bag(bag: Bag, columns: list[BagColumn], meta: pd.DataFrame) -> dd.DataFrame:
    from dask import dataframe as dd

    name = f"to-dataframe-{tokenize(bag, columns)}"
    keys = [(name, i) for i in range(bag.npartitions)]
    tasks = dict(bag.dask)
    for i, key in enumerate(keys):
        tasks[key] = Task(key, _make_partition, TaskRef((bag.name, i)), columns, i)
    tasks = dict(bag.__dask_optimize__(tasks, keys))
    divisions = [None] * (len(keys) + 1)
    return dd.from_graph(tasks, meta, divisions, keys, "to-dataframe")


def _read_sample(bag: Bag, count: int) -> list[Any]:
    if not bag.npartitions:
        return []
    sampled = min(SAMPLED_PARTITIONS, bag.npartitions)
    tasks, name = make_heads(bag, -(-count // sampled))
    numbers = [step * bag.npartitions // sampled for step in range(sampled)]
    records = [
        record for head in compute_heads(tasks, [(name, i) for i in numbers]) for record in head
    ]
    other = next((record for record in records if not isinstance(record, dict)), None)
    if other is not None:
        given = f"a bag that holds a {type(other).__name__}"
        check([Fault("bag", given, "a bag of mappings", "map each record to a mapping first")])
    return records


def _infer_pairs(
    records: list[dict[str, Any]], flatten: bool, types_by_name: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """Return names and paths of the columns: fields of the sample and keys of ``types``."""
    paths = (
        _list_nested_paths(records, "")
        if flatten
        else list(dict.fromkeys(k for r in records for k in r))
    )
    other = next((path for path in paths if not isinstance(path, str)), None)
    if other is not None:
        check([Fault("bag", f"a field named {other!r}", "fields whose names are text")])
    paths = list(dict.fromkeys([*paths, *types_by_name]))
    check(_find_absent_fields(records, [(path, path) for path in paths], "types"))
    if not paths:
        given = "a bag whose sample has no fields"
        check([Fault("bag", given, "records with fields", "write types={'name': 'string', ...}")])
    return tuple((path, path) for path in paths)


def _find_absent_fields(
    records: list[dict[str, Any]], pairs: Iterable[tuple[str, str]], where: str
) -> list[Fault]:
    """Return a fault for each field that no record of a nonempty sample has."""
    if not records:
        return []
    top_fields = _list_sibling_paths(records, "")
    if not top_fields:
        return []
    faults = []
    for name, path in pairs:
        get = FieldGetter(path)
        if any(get(record) is not MISSING for record in records):
            continue
        known = dict.fromkeys([*top_fields, *_list_sibling_paths(records, path)])
        similar = difflib.get_close_matches(path, known, 3)
        question = f"did you mean {' or '.join(map(repr, similar))}? Otherwise " if similar else ""
        advice = f"{question}name a rare field in both fields= and types={{{name!r}: ...}}"
        allowed = f"a field in the sample of {plural(len(records), 'record')}"
        faults.append(Fault(where, repr(path), allowed, advice))
    return faults


def _list_sibling_paths(records: list[dict[str, Any]], path: str) -> list[str]:
    """Return the paths of the fields at the same level as ``path``."""
    above, dot, _ = path.rpartition(".")
    parents = map(FieldGetter(above), records) if dot else records
    mappings = [parent for parent in parents if isinstance(parent, dict)]
    return list(dict.fromkeys(f"{above}{dot}{name}" for parent in mappings for name in parent))


def _list_nested_paths(records: list[dict[str, Any]], above: str) -> list[str]:
    """Return the paths of all fields; nested fields replace a field of nonempty mappings."""
    paths: list[str] = []
    for name in dict.fromkeys(name for record in records for name in record):
        inner = [record[name] for record in records if record.get(name) is not None]
        nested = bool(inner) and all(isinstance(value, dict) and value for value in inner)
        if nested and "." not in name and not any("." in key for value in inner for key in value):
            paths += _list_nested_paths(inner, f"{above}{name}.")
        else:
            paths.append(f"{above}{name}")
    return paths


def _decide_columns(
    pairs: Sequence[tuple[str, str]], types_by_name: Mapping[str, str], records: list[Any]
) -> list[BagColumn]:
    columns: list[BagColumn] = []
    names = [name for name, _ in pairs]
    faults = [
        Fault("types", repr(name), f"names of columns: {', '.join(names)}")
        for name in types_by_name
        if name not in names
    ]
    for name, path in pairs:
        kind: str | Fault
        if name in types_by_name:
            kind = types_by_name[name]
        else:
            get = FieldGetter(path)
            kind = infer_type(name, [get(record, None) for record in records])
        if isinstance(kind, Fault):
            faults.append(kind)
        else:
            columns.append(BagColumn(name, path, kind, name in types_by_name and kind == "string"))
    check(faults)
    return columns


def _make_partition(part: Iterable[Any], columns: list[BagColumn], number: int) -> pd.DataFrame:
    where = f"record {{}} of partition {number}".format
    return make_frame(columns, [[values] for values in make_arrays(columns, list(part), where)])
