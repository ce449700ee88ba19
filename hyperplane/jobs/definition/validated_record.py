"""Base class of validated, JSON-serializable records."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from hyperplane.core.errors import Fault, RequestError, UnknownArgument, check
from hyperplane.core.public_calls import may_be_secret
from hyperplane.core.pydantic_faults import faults_from_validation
from hyperplane.jobs.definition.message_formatting import suggest_names

if TYPE_CHECKING:
    from typing import Self

#: Fields whose values are not shown in messages, because they may contain secrets, with advice.
_HIDDEN_FIELDS = {
    "env": "",
    "output": "",
    "secrets": "list names of secrets, not values",
    "argv": "write the words as a list; there is no shell to split them",
}


RecordT = TypeVar("RecordT", bound="ValidatedRecord")


def _top_field(fault: Fault) -> str:
    """Return the top-level field of a fault."""
    return re.split(r"[.\[]", fault.where, maxsplit=1)[0]


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
            try:
                super().__init__(**values)
            except ValidationError as error:
                reported = {_top_field(fault) for fault in faults}
                new_faults = [self._clean_fault(fault) for fault in faults_from_validation(error)]
                faults += [fault for fault in new_faults if fault.where not in reported]
            faulty = {_top_field(fault) for fault in faults}
            faults += [
                Fault(name, repr(value)[:80], "text, not bytes")
                for name, value in values.items()
                if isinstance(value, bytes | bytearray) and name not in faulty
            ]
            faulty = {_top_field(fault) for fault in faults}
            known = {name: values[name] for name in values if name in type(self).model_fields}
            valid = {
                name: _arrays_to_lists(value) for name, value in known.items() if name not in faulty
            }
            faults += self._check_fields(valid, faulty)
            if known.keys() != values.keys():
                # A TypeError, too, as for any call in Python; validate_record() catches it.
                raise UnknownArgument(faults)
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

    @classmethod
    def _clean_fault(cls, fault: Fault) -> Fault:
        """Remove secrets from a fault of pydantic, and add the known names."""
        top = _top_field(fault)
        if top not in cls.model_fields:
            allowed = "one of " + ", ".join(cls.model_fields)
            asked = "a value not shown" if may_be_secret(top, fault.asked) else fault.asked
            advice = suggest_names(top, cls.model_fields)
            return replace(fault, asked=asked, allowed=allowed, advice=advice)
        if top not in _HIDDEN_FIELDS:
            return fault
        return replace(fault, asked="a value not shown", advice=_HIDDEN_FIELDS[top])

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
        return None, [replace(fault, where=start + fault.where) for fault in error.faults]
