"""``select``: records that meet conditions, and some of their fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from dask.bag import Bag

from hyperplane.collections.bags.fields import (
    FieldSelection,
    RecordFilter,
    parse_fields,
    parse_where,
)
from hyperplane.collections.bags.files import BagPartition
from hyperplane.collections.bags.graph import (
    find_bag_faults,
    get_bag_source,
    map_partitions,
    read_bag,
)
from hyperplane.collections.bags.json_columns import read_matching
from hyperplane.collections.bags.records import ReadSettings, read_partition
from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import check_call


@check_call
def select(
    bag: Bag,
    where: Callable[[Any], Any] | Mapping[str, Any] | None = None,
    fields: Iterable[str] | Mapping[str, str] | None = None,
) -> Bag:
    """Select the records that meet conditions, whole or with some of their fields.

    A field is named by its path: ``"user.id"`` is the field of exactly that name if the record
    has one, else the field ``id`` of the mapping in ``user``. The call reads no record, so a
    misspelled name is not an error: no record meets its condition, and as a field it is None.

    Parameters
    ----------
    bag : dask.bag.Bag
        Records that are mappings; any items if ``where`` is a function.
    where : callable or mapping, optional
        A function of a record; or a mapping of fields to conditions: a value, a list, tuple or
        set of values, or a function of the value. All conditions must hold; a missing field
        meets none. Values are compared as in Python: 1, 1.0 and True are equal.
    fields : list of str or mapping of str to str, optional
        Fields to keep, or a mapping of new names to fields. A missing field is None.

    Returns
    -------
    dask.bag.Bag
        Lazy, with the partitions of ``bag``.

    Raises
    ------
    RequestError
        With every invalid argument.
    BadLines, ReadError
        When it is computed, as for :func:`read_records`.

    Examples
    --------
    >>> import dask.bag as db
    >>> bag = db.from_sequence([{"user": {"id": 1}, "n": 5}, {"n": 6}, {"n": 7}])
    >>> select(bag, {"n": [5, 6]}, {"who": "user.id"}).compute(scheduler="sync")
    [{'who': 1}, {'who': None}]
    """
    condition, faults = parse_where(where)
    selection, field_faults = parse_fields(fields)
    faults += find_bag_faults(bag)
    if where is None and fields is None:
        faults.append(
            Fault("where and fields", "", "neither is set", "pass where=, fields= or both")
        )
    check([*faults, *field_faults])
    source = get_bag_source(bag)
    if source and isinstance(condition, RecordFilter) and source.where is source.fields is None:
        filtered_source = replace(source, where=condition, fields=selection)
        return read_bag("select", _read_selection, filtered_source)
    return map_partitions(bag, "select", _select_records, condition, selection)


def _read_selection(
    settings: ReadSettings, part: BagPartition, where: RecordFilter, fields: FieldSelection | None
) -> Iterator[Any]:
    records = (
        read_matching(settings, part, where)
        if settings.kind == "json"
        else read_partition(settings, part)
    )
    return _select_records(records, where, fields)


def _select_records(
    part: Iterable[Any], where: Any, fields: FieldSelection | None
) -> Iterator[Any]:
    records: Iterable[Any] = part
    if where is not None:
        records = filter(
            where.make_predicate() if isinstance(where, RecordFilter) else where, records
        )
    return map(fields.make_projection(), records) if fields else iter(records)
