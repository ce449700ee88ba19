"""``count_by``: the number of records for each value of a field."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
from dask.bag import Bag
from dask.base import tokenize
from pyarrow import compute

from hyperplane.collections.bags.fields import FieldGetter, FieldSelection, RecordFilter
from hyperplane.collections.bags.files import BagPartition
from hyperplane.collections.bags.graph import find_bag_faults, get_bag_source, make_graph
from hyperplane.collections.bags.json_columns import (
    MAX_REFUSALS,
    ColumnFilter,
    infer_arrow_type,
    iterate_chunks,
    read_columns,
)
from hyperplane.collections.bags.records import LineCounter, ReadSettings, parse_lines
from hyperplane.core.dask_internals.tasks import List, Task, TaskRef
from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import check_call

#: Number of partial counts that one task merges.
SPLIT_EVERY = 8
#: Number of values counted at once; an unhashable value slows down only its batch.
BATCH = 10_000

Counts = dict[Any, int]


@check_call
def count_by(bag: Bag, key: str | Callable[[Any], Any]) -> Bag:
    """Count the records for each value of a field, most frequent first.

    Parameters
    ----------
    bag : dask.bag.Bag
        Records that are mappings; any items if ``key`` is a function.
    key : str or callable
        Path of a field, as in :func:`select`, or a function of a record. A missing field counts
        as None, so a misspelled name gives ``[(None, n)]``. Lists and mappings are counted too;
        NaN counts as one value. Values are compared as in Python: 1, 1.0 and True are one value,
        returned in the form of its first occurrence.

    Returns
    -------
    dask.bag.Bag
        One partition of pairs ``(value, count)``, sorted by descending count, then by first
        occurrence. ``dict(counts.compute())`` is a mapping if all values are hashable.

    Raises
    ------
    RequestError
        If ``bag`` is not a bag, or ``key`` is neither text nor a function.
    BadLines, ReadError
        When it is computed, as for :func:`read_records`.

    Examples
    --------
    >>> import dask.bag as db
    >>> bag = db.from_sequence([{"type": "a"}, {"type": "b"}, {}, {"type": "b"}])
    >>> count_by(bag, "type").compute(scheduler="sync")
    [('b', 2), ('a', 1), (None, 1)]
    """
    faults = find_bag_faults(bag)
    check(faults + _find_key_faults(key))
    name = f"count-by-{tokenize(bag, key)}"
    partial = f"{name}-part"
    source = get_bag_source(bag)
    path = (
        _find_path_in_files(key, source.fields)
        if source and source.settings.kind == "json"
        else None
    )
    tasks: dict[Any, Any] = {}
    if source is not None and path is not None and ColumnFilter(source.where).is_whole:
        dependencies = []
        for i, part in enumerate(source.parts):
            arguments = (source.settings, part, source.where, path)
            tasks[partial, i] = Task((partial, i), _count_partition, *arguments)
    else:
        dependencies = [bag]
        for i in range(bag.npartitions):
            tasks[partial, i] = Task((partial, i), _count_values, TaskRef((bag.name, i)), key)
    level = [(partial, i) for i in range(bag.npartitions)]
    depth = 0
    while len(level) > SPLIT_EVERY:
        above = [(f"{name}-{depth}", i) for i in range(-(-len(level) // SPLIT_EVERY))]
        for merged in above:
            group = level[merged[1] * SPLIT_EVERY : (merged[1] + 1) * SPLIT_EVERY]
            tasks[merged] = Task(merged, _merge_counts, List(*map(TaskRef, group)))
        level, depth = above, depth + 1
    tasks[name, 0] = Task((name, 0), _sort_counts, List(*map(TaskRef, level)))
    return Bag(make_graph(name, tasks, dependencies), name, 1)


def _find_key_faults(key: Any) -> list[Fault]:
    if isinstance(key, str) or callable(key):
        return []
    return [Fault("key", repr(key)[:80], "the name of a field, or a function of a record")]


def _find_path_in_files(key: Any, fields: FieldSelection | None) -> str | None:
    """Return the path of a key in the lines of the files; None if it is not in ``fields``."""
    if not isinstance(key, str) or fields is None:
        return key if isinstance(key, str) else None
    return dict(fields.pairs).get(key)


class HashableKey:
    """Hashable wrapper of a list, mapping or set, with the equality of Python."""

    __slots__ = ("frozen", "value")

    def __init__(self, value: Any) -> None:
        self.value, self.frozen = value, _freeze(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HashableKey) and self.frozen == other.frozen

    def __hash__(self) -> int:
        return hash(self.frozen)

    def __reduce__(self) -> Any:
        return HashableKey, (self.value,)


def _freeze(value: Any) -> Any:
    if isinstance(value, dict):
        return dict, frozenset((name, _freeze(inner)) for name, inner in value.items())
    if isinstance(value, (list, tuple)):
        return type(value), tuple(map(_freeze, value))
    if isinstance(value, set):
        return frozenset(value)
    return value


def _make_hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return HashableKey(value)
    return math.nan if isinstance(value, float) and math.isnan(value) else value


def _count_values(part: Iterable[Any], key: Any) -> Counts:
    if isinstance(key, str):
        get = FieldGetter(key)
        return _count_in_batches(get(record, None) for record in part)
    return _count_in_batches(map(key, part))


def _count_in_batches(values: Iterable[Any]) -> Counts:
    counts: Counts = {}
    remaining: Iterator[Any] = iter(values)
    while batch := list(islice(remaining, BATCH)):
        try:
            chunk_counts: Counts = Counter(batch)
        except TypeError:
            chunk_counts = Counter(map(_make_hashable, batch))
        _add_counts(counts, chunk_counts)
    return counts


def _add_counts(counts: Counts, other: Counts) -> None:
    for value, count in other.items():
        key = math.nan if isinstance(value, float) and value != value else value
        counts[key] = counts.get(key, 0) + count


def _merge_counts(count_maps: list[Counts]) -> Counts:
    counts: Counts = {}
    for other in count_maps:
        _add_counts(counts, other)
    return counts


def _sort_counts(count_maps: list[Counts]) -> list[tuple[Any, int]]:
    counts = _merge_counts(count_maps)
    ordered = sorted(counts.items(), key=lambda pair: -pair[1])
    return [(k.value if isinstance(k, HashableKey) else k, count) for k, count in ordered]


def _count_partition(
    settings: ReadSettings, part: BagPartition, where: RecordFilter | None, path: str
) -> Counts:
    """Count a partition of files, with Arrow for the chunks that Arrow parses as Python does."""
    counter = LineCounter(settings, part)
    conditions = ColumnFilter(where)
    matches, get = where.make_predicate() if where else None, FieldGetter(path)
    counts: Counts = {}
    refusals_left, kind = MAX_REFUSALS, None
    for byte_range, offset, chunk in iterate_chunks(settings, part):
        chunk_counts = None
        if refusals_left:
            kind = (
                kind
                or conditions.types.get(path)
                or _infer_value_type(settings, byte_range, offset, chunk, get)
            )
            chunk_counts = _count_columns(settings, chunk, conditions, path, kind, counter)
            refusals_left -= chunk_counts is None
        if chunk_counts is None:
            parsed = parse_lines(settings, byte_range, offset, chunk, counter)
            matching = filter(matches, parsed) if matches else parsed
            chunk_counts = _count_in_batches(get(record, None) for record in matching)
        _add_counts(counts, chunk_counts)
    counter.close()
    return counts


def _infer_value_type(
    settings: ReadSettings, byte_range: Any, offset: int, chunk: bytes, get: FieldGetter
) -> Any:
    """Return the Arrow type of the first record's value; string if null, None if unsupported."""
    first = chunk[: chunk.index(b"\n") + 1]
    for record in parse_lines(settings, byte_range, offset, first, LineCounter(settings, ())):
        value = get(record, None)
        return pa.string() if value is None else infer_arrow_type([value])
    return None


def _count_columns(
    settings: ReadSettings,
    chunk: bytes,
    conditions: ColumnFilter,
    path: str,
    kind: Any,
    counter: LineCounter,
) -> Counts | None:
    if (
        kind is None
        or (parsed := read_columns(settings, chunk, {**conditions.types, path: kind})) is None
    ):
        return None
    values, mask = parsed[path], conditions.mask(parsed)
    counter.good += len(values)
    counted = compute.value_counts(values if mask is None else values.filter(mask))
    keys, counts = counted.flatten()
    return dict(zip(keys.to_pylist(), counts.to_pylist(), strict=True))
