"""Access to fields by path, conditions on fields, and selections of fields."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from hyperplane.core.errors import Fault
from hyperplane.core.units import is_iterable

#: Value of a field that a record does not have, as opposed to None for null.
MISSING: Any = type("Missing", (), {"__repr__": lambda self: "MISSING"})()


class FieldGetter:
    """Returns the value at a path: the field of exactly that name, else the nested field.

    Examples
    --------
    >>> FieldGetter("user.id")({"user": {"id": 7}}), FieldGetter("user.id")({"user.id": 8})
    (7, 8)
    >>> FieldGetter("user.id")({"user": "x"}, None) is None
    True
    """

    __slots__ = ("parts", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.parts = path.split(".")

    def __call__(self, record: Any, default: Any = MISSING) -> Any:
        """Return the value, or ``default`` if the record has none."""
        if not isinstance(record, dict):
            return default
        if self.path in record:
            return record[self.path]
        if len(self.parts) == 1:
            return default
        for part in self.parts:
            if not isinstance(record, dict) or part not in record:
                return default
            record = record[part]
        return record

    def __reduce__(self) -> Any:
        return FieldGetter, (self.path,)


@dataclass(frozen=True)
class OneOfCondition:
    """A condition that is true if the value equals one of ``values``."""

    values: Any

    def __call__(self, value: Any) -> bool:
        """Whether ``value`` is one of the values."""
        try:
            return value in self.values
        except TypeError:  # unhashable, so not equal to any element of a set
            return False


@dataclass(frozen=True)
class RecordFilter:
    """Conjunction of conditions: pairs of a path and a :class:`OneOfCondition` or a function."""

    conditions: tuple[tuple[str, Callable[[Any], Any]], ...]

    def make_predicate(self) -> Callable[[Any], bool]:
        """Return a predicate of records that is true if a record meets all conditions."""
        tests = [(FieldGetter(path), condition) for path, condition in self.conditions]

        def matches(record: Any) -> bool:
            for get, condition in tests:
                value = get(record)
                if value is MISSING or not condition(value):
                    return False
            return True

        return matches


@dataclass(frozen=True)
class FieldSelection:
    """Fields to keep, as pairs of the new name and the path."""

    pairs: tuple[tuple[str, str], ...]

    def make_projection(self) -> Callable[[Any], dict[str, Any]]:
        """Return a function from a record to the new record; missing fields are None."""
        getters = [(name, FieldGetter(path)) for name, path in self.pairs]
        return lambda record: {name: get(record, None) for name, get in getters}


def parse_where(where: Any) -> tuple[Any, list[Fault]]:
    """Parse ``where`` into a :class:`RecordFilter`, a function or None, and faults."""
    if where is None or callable(where):
        return where, []
    allowed = "a function of a record, or a mapping of field names to values"
    if not isinstance(where, Mapping):
        return None, [Fault("where", repr(where)[:80], allowed)]
    faults = [
        Fault("where", repr(name)[:80], "names of fields as text")
        for name in where
        if not isinstance(name, str)
    ]
    return RecordFilter(
        tuple((name, _make_condition(value)) for name, value in where.items())
    ), faults


def _make_condition(value: Any) -> Callable[[Any], Any]:
    if callable(value):
        return value
    is_collection = isinstance(value, (list, tuple, set, frozenset))
    values = list(value) if is_collection else [value]
    if all(isinstance(element, Hashable) and _is_hashable(element) for element in values):
        return OneOfCondition(frozenset(values))
    return OneOfCondition(values)


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:  # a tuple that contains a list
        return False
    return True


def parse_fields(fields: Any) -> tuple[FieldSelection | None, list[Fault]]:
    """Parse ``fields`` into a :class:`FieldSelection`, or None for all fields, and faults."""
    if fields is None:
        return None, []
    allowed = "a list of field names, or a mapping of new names to field names"
    if isinstance(fields, str) or not is_iterable(fields):
        advice = f"write fields=[{fields!r}]" if isinstance(fields, str) else ""
        return None, [Fault("fields", repr(fields)[:80], allowed, advice)]
    try:
        pairs = tuple(fields.items() if isinstance(fields, Mapping) else ((n, n) for n in fields))
    except TypeError:  # a zero-dimensional array passes the check for iterables
        return None, [Fault("fields", repr(fields)[:80], allowed)]
    # Deduplicated by their text, because some values are unhashable.
    wrong = dict.fromkeys(repr(name)[:80] for pair in pairs for name in pair if not _is_text(name))
    faults = [Fault("fields", name, "names of fields as text") for name in wrong]
    names = [name for name, _ in pairs if _is_text(name)]
    faults += [
        Fault("fields", repr(name), "each name once")
        for name in sorted({name for name in names if names.count(name) > 1})
    ]
    if not pairs:
        faults.append(Fault("fields", repr(fields), f"{allowed}, with at least one field"))
    return FieldSelection(pairs), faults


def _is_text(name: Any) -> bool:
    return isinstance(name, str)
