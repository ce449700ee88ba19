"""``to_dataframe``: records as rows, of types that are inferred first and checked then."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dask.config
from dask._task_spec import Task, TaskRef
from dask.bag import Bag
from dask.base import tokenize

from hyperplane.collections.bags.fields import MISSING, Getter, read_fields
from hyperplane.collections.bags.graph import Reading, bag_faults, reading_of
from hyperplane.collections.bags.rows import ReadFrame, arrays, frame
from hyperplane.collections.bags.take import compute_heads, heads
from hyperplane.collections.bags.types import (
    Column,
    infer,
    read_types,
)
from hyperplane.collections.flags import find_flag_faults
from hyperplane.errors import Fault, check
from hyperplane.public_calls import check_call
from hyperplane.units import whole_number

if TYPE_CHECKING:
    import pandas as pd
    from dask import dataframe as dd

#: Partitions whose first records are looked at.
LOOKED_AT = 4


@check_call
def to_dataframe(
    bag: Bag,
    *,
    fields: Iterable[str] | Mapping[str, str] | None = None,
    types: Mapping[str, Any] | None = None,
    sample: int = 1000,
    flatten: bool = False,
) -> dd.DataFrame:
    """A Dask dataframe of records, with inferred and checked types.

    The types come from the first records of up to four partitions, which are read **now**; the
    rest is lazy. When it is computed, each value is checked: one that is not of its column's
    type ends the compute with :class:`~hyperplane.errors.WrongType`, which names the field, the
    value, its file and line (or its partition), and the ``types=`` to write.

    ================================  =====================================================
    values in the sample              type of the column
    ================================  =====================================================
    whole numbers                     int64; Int64 if some are null or missing
    whole numbers and fractions       float64, null is NaN
    true, false                       bool; boolean if some are null or missing
    ISO dates and times               datetime64[us]; with a zone, datetime64[us, UTC]
    other text                        string (Arrow), null is NA
    lists, mappings, only nulls       object: Python's objects, not checked
    ================================  =====================================================

    Anything else, such as numbers and text in one field, is refused until ``types`` decides it.

    Parameters
    ----------
    bag : dask.bag.Bag
        Of mappings.
    fields : list of str or mapping of str to str, optional
        Fields, or names of columns and fields, by path as in :func:`select`. By default all
        fields that the sample holds, in order of appearance. A field that no record of the
        sample has is refused, unless both ``fields`` and ``types`` name it.
    types : mapping of str to str, optional
        Types of some columns, one of those above. With ``"string"``, what is no text becomes
        text: 5 becomes ``"5"``, lists and mappings become JSON.
    sample : int
        Records to look at.
    flatten : bool
        Whether a mapping in a record becomes a column for each of its fields, ``"user.id"``.

    Returns
    -------
    dask.dataframe.DataFrame
        A partition for each of the bag; each counts its rows from 0.

    Raises
    ------
    RequestError
        With every argument that cannot be and every field whose type is not clear.

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
    from dask import dataframe as dd  # here, for programs that make no dataframe

    chosen, faults = read_fields(fields)
    kinds, more = read_types(types)
    count = whole_number(sample)
    if count is None or count < 1:
        more.append(Fault("sample", repr(sample)[:80], "a whole number from 1"))
    more += bag_faults(bag) + find_flag_faults(flatten=flatten)
    check([*faults, *more])
    records = _sampled(bag, min(count or 1, sys.maxsize))
    pairs = chosen.pairs if chosen else _pairs(records, flatten, kinds)
    if chosen:
        check(_absent(records, [pair for pair in pairs if pair[0] not in kinds], "fields"))
    decided = _columns(pairs, kinds, records)
    meta = frame(decided, [[] for _ in decided])
    reading = reading_of(bag)
    in_file = _in_file(decided, reading)
    if reading is not None and in_file is not None:
        token = tokenize(reading.token, reading.where, in_file)
        read = ReadFrame(reading.source, reading.where, in_file, token)
        # Dask would make text of all objects, lists and mappings too.
        with dask.config.set({"dataframe.convert-string": False}):
            return dd.from_map(read, reading.parts, meta=meta, enforce_metadata=False)
    if not bag.npartitions:
        return dd.from_pandas(meta, npartitions=1)
    return _from_bag(bag, decided, meta)


def _in_file(decided: list[Column], reading: Reading | None) -> tuple[Column, ...] | None:
    """The columns with the paths that they have in the files; None if they are not there."""
    if reading is None or reading.source.kind != "json":
        return None
    if reading.fields is None:
        return tuple(decided)
    paths = dict(reading.fields.pairs)
    if not all(column.path in paths for column in decided):
        return None
    return tuple(replace(column, path=paths[column.path]) for column in decided)


def _from_bag(bag: Bag, decided: list[Column], meta: pd.DataFrame) -> dd.DataFrame:
    from dask import dataframe as dd

    name = f"to-dataframe-{tokenize(bag, decided)}"
    keys = [(name, i) for i in range(bag.npartitions)]
    tasks = dict(bag.dask)
    for i, key in enumerate(keys):
        tasks[key] = Task(key, _frame_of, TaskRef((bag.name, i)), decided, i)
    tasks = dict(bag.__dask_optimize__(tasks, keys))
    divisions = [None] * (len(keys) + 1)
    return dd.from_graph(tasks, meta, divisions, keys, "to-dataframe")


def _sampled(bag: Bag, count: int) -> list[Any]:
    if not bag.npartitions:
        return []
    looked_at = min(LOOKED_AT, bag.npartitions)
    tasks, name = heads(bag, -(-count // looked_at))
    chosen = [step * bag.npartitions // looked_at for step in range(looked_at)]
    records = [
        record for head in compute_heads(tasks, [(name, i) for i in chosen]) for record in head
    ]
    other = next((record for record in records if not isinstance(record, dict)), None)
    if other is not None:
        asked = f"a bag that holds a {type(other).__name__}"
        check([Fault("bag", asked, "a bag of mappings", "map each to a mapping first")])
    return records


def _pairs(
    records: list[dict[str, Any]], flatten: bool, kinds: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """Names and paths of the columns: what the sample holds, and what has a type."""
    paths = _flat(records, "") if flatten else list(dict.fromkeys(k for r in records for k in r))
    other = next((path for path in paths if not isinstance(path, str)), None)
    if other is not None:
        check([Fault("bag", f"a field named {other!r}", "fields with names that are text")])
    paths = list(dict.fromkeys([*paths, *kinds]))
    check(_absent(records, [(path, path) for path in paths], "types"))
    if not paths:
        asked = "a sample without fields"
        check([Fault("bag", asked, "records", "write types={'name': 'string', ...}")])
    return tuple((path, path) for path in paths)


def _absent(
    records: list[dict[str, Any]], pairs: Iterable[tuple[str, str]], where: str
) -> list[Fault]:
    """A fault for each field that none of the records has; without records there is none."""
    if not records:
        return []
    top = _names_in(records, "")
    if not top:
        return []
    faults = []
    for name, path in pairs:
        get = Getter(path)
        if any(get(record) is not MISSING for record in records):
            continue
        known = dict.fromkeys([*top, *_names_in(records, path)])
        near = difflib.get_close_matches(path, known, 3)
        meant = f"did you mean {' or '.join(map(repr, near))}? if not, " if near else ""
        advice = f"{meant}name a rare field in both fields= and types={{{name!r}: ...}}"
        allowed = f"a field of the {len(records):,} records of the sample"
        faults.append(Fault(where, repr(path), allowed, advice))
    return faults


def _names_in(records: list[dict[str, Any]], path: str) -> list[str]:
    """Paths of the fields beside a path, as they come; of an empty one, names of all fields."""
    above, dot, _ = path.rpartition(".")
    found = map(Getter(above), records) if dot else records
    inner = [one for one in found if isinstance(one, dict)]
    return list(dict.fromkeys(f"{above}{dot}{name}" for one in inner for name in one))


def _flat(records: list[dict[str, Any]], above: str) -> list[str]:
    """Paths of all values; a field that is always a mapping stands for the fields in it."""
    paths: list[str] = []
    for name in dict.fromkeys(name for record in records for name in record):
        inner = [record[name] for record in records if record.get(name) is not None]
        nested = bool(inner) and all(isinstance(value, dict) and value for value in inner)
        if nested and "." not in name and not any("." in key for value in inner for key in value):
            paths += _flat(inner, f"{above}{name}.")
        else:
            paths.append(f"{above}{name}")
    return paths


def _columns(
    pairs: Sequence[tuple[str, str]], kinds: Mapping[str, str], records: list[Any]
) -> list[Column]:
    decided: list[Column] = []
    names = [name for name, _ in pairs]
    faults = [
        Fault("types", repr(name), f"names of columns: {', '.join(names)}")
        for name in kinds
        if name not in names
    ]
    for name, path in pairs:
        kind: str | Fault
        if name in kinds:
            kind = kinds[name]
        else:
            get = Getter(path)
            kind = infer(name, [get(record, None) for record in records])
        if isinstance(kind, Fault):
            faults.append(kind)
        else:
            decided.append(Column(name, path, kind, name in kinds and kind == "string"))
    check(faults)
    return decided


def _frame_of(part: Iterable[Any], decided: list[Column], number: int) -> pd.DataFrame:
    where = f"record {{}} of partition {number}".format
    return frame(decided, [[values] for values in arrays(decided, list(part), where)])
