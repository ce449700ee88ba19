"""Base class of validated, JSON-serializable records."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from hyperplane.core.errors import Fault, RequestError, UnknownKey, UnknownName, check
from hyperplane.core.public_calls import unknown_name
from hyperplane.core.pydantic_faults import faults_from_validation

if TYPE_CHECKING:
    from typing import Self

#: Fields whose values are not shown in messages, because they may contain secrets, with advice.
_HIDDEN_FIELDS = {
    "env": "",
    "output": "",
    "secrets": "list names of secrets, not values",
    "args": "write the words as a list",
    "argv": "write the words as a list; there is no shell to split them",
}


RecordT = TypeVar("RecordT", bound="ValidatedRecord")


def _top_field(fault: Fault) -> str:
    """Return the top-level field of a fault."""
    return re.split(r"[.\[]", fault.where, maxsplit=1)[0]


def _hide_value(fault: Fault) -> Fault:
    """Remove a value that may contain secrets from a fault."""
    top = _top_field(fault)
    if top not in _HIDDEN_FIELDS:
        return fault
    return replace(fault, asked="a value not shown", advice=_HIDDEN_FIELDS[top])


def _arrays_to_lists(value: Any) -> Any:
    """Convert arrays of texts to lists, as pydantic does."""
    is_list = hasattr(value, "__array__") and hasattr(value, "__len__")
    # A zero-dimensional array has a length but no items; pydantic reads it as a number.
    return list(value) if is_list and getattr(value, "shape", None) != () else value


class ValidatedRecord(BaseModel):
    """A record that is validated when created and can be stored as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    if not TYPE_CHECKING:

        def __init__(self, **values: Any) -> None:
            values, faults = self._build_nested(values)
            fields = type(self).model_fields
            unknown = [name for name in values if name not in fields]
            try:
                super().__init__(**values)
            except ValidationError as error:
                reported = {_top_field(fault) for fault in faults}
                faults += [
                    _hide_value(fault)
                    for fault in faults_from_validation(error)
                    if _top_field(fault) in fields and fault.where not in {*reported, *unknown}
                ]
            faults += [
                unknown_name(name, values[name], fields, type(self).__name__) for name in unknown
            ]
            faulty = {_top_field(fault) for fault in faults}
            faults += [
                Fault(name, repr(value)[:80], "text, not bytes")
                for name, value in values.items()
                if isinstance(value, bytes | bytearray) and name not in faulty
            ]
            faulty = {_top_field(fault) for fault in faults}
            valid = {
                name: _arrays_to_lists(value)
                for name, value in values.items()
                if name in fields and name not in faulty
            }
            faults += self._check_fields(valid, faulty)
            check(faults)

    @classmethod
    def _build_nested(cls, values: dict[str, Any]) -> tuple[dict[str, Any], list[Fault]]:
        """Build nested records first, so that each fault has its own path."""
        return values, []

    @classmethod
    def _check_fields(cls, values: Mapping[str, Any], faulty: Set[str]) -> list[Fault]:
        """Return the faults of combinations of fields.

        ``values`` are the fields that are valid individually, ``faulty`` the names of the others.
        """
        return []

    def to_json(self) -> str:
        """Return the record as JSON text for ``from_json``."""
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Create a record from the output of ``to_json``.

        Raises
        ------
        RequestError
            If the text is not JSON, or not such a record.
        """
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise RequestError(
                [Fault("text", "not JSON", "the output of to_json", str(error))]
            ) from None
        if not isinstance(values, dict):
            asked = type(values).__name__
            raise RequestError([Fault("text", asked, "a JSON object, the output of to_json")])
        return cls(**values)


def validate_record(
    record: type[RecordT], values: Mapping[str, Any], prefix: str = ""
) -> tuple[RecordT | None, list[Fault]]:
    """Create a record; return it, or None, and its faults, whose paths begin with ``prefix``."""
    try:
        return record(**{str(name): value for name, value in values.items()}), []
    except RequestError as error:
        start = f"{prefix}." if prefix else ""
        return None, [
            to_key_fault(replace(fault, where=start + fault.where)) for fault in error.faults
        ]


def to_key_fault(fault: Fault) -> Fault:
    """Convert the fault of an unknown argument to that of an unknown key; return others as given.

    Examples
    --------
    >>> fault = unknown_name("retry", 2, ["name", "retries"], "Step")
    >>> print(to_key_fault(fault))
    retry = 2: no such key; expected one of name, retries; did you mean retries?
    """
    if not isinstance(fault, UnknownName):
        return fault
    return UnknownKey(fault.where, fault.asked, fault.allowed, fault.advice, fault.source)
