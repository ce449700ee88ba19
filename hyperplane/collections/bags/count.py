"""``count_by``: how many records have each value."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
from dask._task_spec import List, Task, TaskRef
from dask.bag import Bag
from dask.base import tokenize
from pyarrow import compute

from hyperplane.collections.bags.fields import Fields, Getter, Where
from hyperplane.collections.bags.files import Part
from hyperplane.collections.bags.graph import bag_faults, graph_of, reading_of
from hyperplane.collections.bags.kernel import TRIES, Filter, columns, ended_chunks, type_of
from hyperplane.collections.bags.records import Source, Tally, parse
from hyperplane.errors import Fault, check
from hyperplane.public_calls import check_call

#: Partial counts that are put together at once.
SPLIT_EVERY = 8
#: Values that are counted at once, so that one that cannot be hashed slows down few others.
BATCH = 10_000

Counts = dict[Any, int]


@check_call
def count_by(bag: Bag, key: str | Callable[[Any], Any]) -> Bag:
    """How many records have each value of a field, most frequent first.

    Parameters
    ----------
    bag : dask.bag.Bag
        Of mappings; with a function as ``key``, of anything.
    key : str or callable
        Path of a field, as in :func:`select`, or a function of a record. A missing field counts
        as None, so that a misspelt name gives ``[(None, n)]``. Lists and mappings are counted
        too; NaN counts as one value. Values are equal as in Python: 1, 1.0 and True are one
        value, shown as it came first.

    Returns
    -------
    dask.bag.Bag
        One partition of pairs ``(value, count)`` in descending order of the counts, and of
        first appearance where these are equal. ``dict(counts.compute())`` is a mapping, if all
        values can be keys.

    Raises
    ------
    RequestError
        When the key is neither.

    Examples
    --------
    >>> import dask.bag as db
    >>> bag = db.from_sequence([{"type": "a"}, {"type": "b"}, {}, {"type": "b"}])
    >>> count_by(bag, "type").compute(scheduler="sync")
    [('b', 2), ('a', 1), (None, 1)]
    """
    faults = bag_faults(bag)
    check(faults + _key_faults(key))
    name = f"count-by-{tokenize(bag, key)}"
    partial = f"{name}-part"
    reading = reading_of(bag)
    path = _path_in_file(key, reading.fields) if reading and reading.source.kind == "json" else None
    tasks: dict[Any, Any] = {}
    if reading is not None and path is not None and Filter(reading.where).is_whole:
        dependencies = []
        for i, part in enumerate(reading.parts):
            arguments = (reading.source, part, reading.where, path)
            tasks[partial, i] = Task((partial, i), _count_part, *arguments)
    else:
        dependencies = [bag]
        for i in range(bag.npartitions):
            tasks[partial, i] = Task((partial, i), _count_values, TaskRef((bag.name, i)), key)
    level = [(partial, i) for i in range(bag.npartitions)]
    depth = 0
    while len(level) > SPLIT_EVERY:
        above = [(f"{name}-{depth}", i) for i in range(-(-len(level) // SPLIT_EVERY))]
        for new in above:
            some = level[new[1] * SPLIT_EVERY : (new[1] + 1) * SPLIT_EVERY]
            tasks[new] = Task(new, _together, List(*map(TaskRef, some)))
        level, depth = above, depth + 1
    tasks[name, 0] = Task((name, 0), _in_order, List(*map(TaskRef, level)))
    return Bag(graph_of(name, tasks, dependencies), name, 1)


def _key_faults(key: Any) -> list[Fault]:
    if isinstance(key, str) or callable(key):
        return []
    return [Fault("key", repr(key)[:80], "the name of a field, or a function of a record")]


def _path_in_file(key: Any, fields: Fields | None) -> str | None:
    """Where the key stands in the lines of the files; None if it is not a field of them."""
    if not isinstance(key, str) or fields is None:
        return key if isinstance(key, str) else None
    return dict(fields.pairs).get(key)


class Unhashable:
    """A list, mapping or set as a key, equal to others as Python's ``==`` says."""

    __slots__ = ("frozen", "value")

    def __init__(self, value: Any) -> None:
        self.value, self.frozen = value, _frozen(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unhashable) and self.frozen == other.frozen

    def __hash__(self) -> int:
        return hash(self.frozen)

    def __reduce__(self) -> Any:
        return Unhashable, (self.value,)


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return dict, frozenset((name, _frozen(inner)) for name, inner in value.items())
    if isinstance(value, (list, tuple)):
        return type(value), tuple(map(_frozen, value))
    if isinstance(value, set):
        return frozenset(value)
    return value


def _key(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return Unhashable(value)
    return math.nan if isinstance(value, float) and math.isnan(value) else value


def _count_values(part: Iterable[Any], key: Any) -> Counts:
    if isinstance(key, str):
        get = Getter(key)
        return _counted(get(record, None) for record in part)
    return _counted(map(key, part))


def _counted(values: Iterable[Any]) -> Counts:
    counts: Counts = {}
    rest: Iterator[Any] = iter(values)
    while batch := list(islice(rest, BATCH)):
        try:
            these: Counts = Counter(batch)
        except TypeError:
            these = Counter(map(_key, batch))
        _add(counts, these)
    return counts


def _add(counts: Counts, more: Counts) -> None:
    for value, count in more.items():
        key = math.nan if isinstance(value, float) and value != value else value
        counts[key] = counts.get(key, 0) + count


def _together(some: list[Counts]) -> Counts:
    counts: Counts = {}
    for more in some:
        _add(counts, more)
    return counts


def _in_order(some: list[Counts]) -> list[tuple[Any, int]]:
    counts = _together(some)
    ordered = sorted(counts.items(), key=lambda pair: -pair[1])
    return [(k.value if isinstance(k, Unhashable) else k, count) for k, count in ordered]


def _count_part(source: Source, part: Part, where: Where | None, path: str) -> Counts:
    """Counts of a partition of files, from columns where they tell what records would."""
    tally = Tally(source, part)
    conditions = Filter(where)
    matches, get = where.test() if where else None, Getter(path)
    counts: Counts = {}
    tries, kind = TRIES, None
    for span, place, chunk in ended_chunks(source, part):
        these = None
        if tries:
            kind = kind or conditions.types.get(path) or _kind_of(source, span, place, chunk, get)
            these = _from_columns(source, chunk, conditions, path, kind, tally)
            tries -= these is None
        if these is None:
            found = parse(source, span, place, chunk, tally)
            kept = filter(matches, found) if matches else found
            these = _counted(get(record, None) for record in kept)
        _add(counts, these)
    tally.close()
    return counts


def _kind_of(source: Source, span: Any, place: int, chunk: bytes, get: Getter) -> Any:
    """The type of the first value, to be tried for the others; text when that is null."""
    first = chunk[: chunk.index(b"\n") + 1]
    for record in parse(source, span, place, first, Tally(source, ())):
        value = get(record, None)
        return pa.string() if value is None else type_of([value])
    return None


def _from_columns(
    source: Source, chunk: bytes, conditions: Filter, path: str, kind: Any, tally: Tally
) -> Counts | None:
    if kind is None or (found := columns(source, chunk, {**conditions.types, path: kind})) is None:
        return None
    values, mask = found[path], conditions.mask(found)
    tally.good += len(values)
    counted = compute.value_counts(values if mask is None else values.filter(mask))
    keys, counts = counted.flatten()
    return dict(zip(keys.to_pylist(), counts.to_pylist(), strict=True))
