"""``select``: some records, and some fields of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from dask.bag import Bag

from hyperplane.collections.bags.fields import Fields, Where, read_fields, read_where
from hyperplane.collections.bags.files import Part
from hyperplane.collections.bags.graph import bag_faults, mapped, read_bag, reading_of
from hyperplane.collections.bags.kernel import matching
from hyperplane.collections.bags.records import Source, read_part
from hyperplane.errors import Fault, check
from hyperplane.public_calls import check_call


@check_call
def select(
    bag: Bag,
    where: Callable[[Any], Any] | Mapping[str, Any] | None = None,
    fields: Iterable[str] | Mapping[str, str] | None = None,
) -> Bag:
    """The records that meet conditions, whole or with some of their fields.

    A field is named by its path: ``"user.id"`` is the field of that very name if the record has
    one, else the field ``id`` of the mapping in ``user``. No record is read at the call, so that a
    misspelt name is no error: nothing meets its condition, and as a field it is None everywhere.

    Parameters
    ----------
    bag : dask.bag.Bag
        Of mappings; with a function as ``where``, of anything.
    where : callable or mapping, optional
        A function of a record; or fields and what each must be: a value, a list, tuple or set of
        values, or a function of the value. All must hold; a field that is missing meets nothing.
        Values are equal as in Python: 1, 1.0 and True are.
    fields : list of str or mapping of str to str, optional
        Fields to keep, or new names and the fields for them. A missing field is None.

    Returns
    -------
    dask.bag.Bag

    Raises
    ------
    RequestError
        With everything that is wrong with the arguments.

    Examples
    --------
    >>> import dask.bag as db
    >>> bag = db.from_sequence([{"user": {"id": 1}, "n": 5}, {"n": 6}, {"n": 7}])
    >>> select(bag, {"n": [5, 6]}, {"who": "user.id"}).compute(scheduler="sync")
    [{'who': 1}, {'who': None}]
    """
    condition, faults = read_where(where)
    chosen, more = read_fields(fields)
    faults += bag_faults(bag)
    if where is None and fields is None:
        faults.append(Fault("where and fields", "None", "one of them, or both"))
    check([*faults, *more])
    reading = reading_of(bag)
    if reading and isinstance(condition, Where) and reading.where is reading.fields is None:
        narrowed = replace(reading, where=condition, fields=chosen)
        return read_bag("select", _read_selected, narrowed)
    return mapped(bag, "select", _selected, condition, chosen)


def _read_selected(
    source: Source, part: Part, where: Where, fields: Fields | None
) -> Iterator[Any]:
    found = matching(source, part, where) if source.kind == "json" else read_part(source, part)
    return _selected(found, where, fields)


def _selected(part: Iterable[Any], where: Any, fields: Fields | None) -> Iterator[Any]:
    found: Iterable[Any] = part
    if where is not None:
        found = filter(where.test() if isinstance(where, Where) else where, found)
    return map(fields.projection(), found) if fields else iter(found)
