"""Records that are checked when they are made and can be kept as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from hyperplane.errors import Fault, RequestError, UnknownArgument, check
from hyperplane.jobs.definition.wording import suggest_names
from hyperplane.public_calls import may_be_secret
from hyperplane.spec.faults import faults_from_validation

if TYPE_CHECKING:
    from typing import Self

#: Fields whose values no message shows: somebody may have written a secret there.
_HIDDEN_FIELDS = {
    "env": "",
    "output": "",
    "secrets": "names stand here, never values",
    "argv": "write the words as a list: no shell reads them",
}


RecordT = TypeVar("RecordT", bound="Record")


def _top_field(fault: Fault) -> str:
    """The field that a fault is in."""
    return re.split(r"[.\[]", fault.where, maxsplit=1)[0]


def _arrays_to_lists(value: Any) -> Any:
    """A value; a table or array of texts, which pydantic takes for a list, as a list."""
    is_list = hasattr(value, "__array__") and hasattr(value, "__len__")
    # An array without dimensions has a length and no items; to pydantic it is a number.
    return list(value) if is_list and getattr(value, "shape", None) != () else value


class Record(BaseModel):
    """A record that is checked when it is made and can be kept as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    if not TYPE_CHECKING:

        def __init__(self, **values: Any) -> None:
            values, faults = self._with_inner(values)
            try:
                super().__init__(**values)
            except ValidationError as error:
                told = {_top_field(fault) for fault in faults}
                found = [self._told(fault) for fault in faults_from_validation(error)]
                faults += [fault for fault in found if fault.where not in told]
            faulty = {_top_field(fault) for fault in faults}
            faults += [
                Fault(name, repr(value)[:80], "text, not bytes")
                for name, value in values.items()
                if isinstance(value, bytes | bytearray) and name not in faulty
            ]
            faulty = {_top_field(fault) for fault in faults}
            known = {name: values[name] for name in values if name in type(self).model_fields}
            right = {
                name: _arrays_to_lists(value) for name, value in known.items() if name not in faulty
            }
            faults += self._rules(right, faulty)
            if known.keys() != values.keys():
                # Raised for calls in Python only: of files, the faults are gathered.
                raise UnknownArgument(faults)
            check(faults)

    @classmethod
    def _with_inner(cls, values: dict[str, Any]) -> tuple[dict[str, Any], list[Fault]]:
        """The values with the records inside made, so that each fault has its own path."""
        return values, []

    @classmethod
    def _rules(cls, values: Mapping[str, Any], faulty: Set[str]) -> list[Fault]:
        """What is wrong between fields that are right by themselves; faulty ones are named."""
        return []

    @classmethod
    def _told(cls, fault: Fault) -> Fault:
        """A fault of pydantic without secrets, and with the names that there are."""
        top = _top_field(fault)
        if top not in cls.model_fields:
            allowed = "one of " + ", ".join(cls.model_fields)
            asked = "a value not shown here" if may_be_secret(top, fault.asked) else fault.asked
            advice = suggest_names(top, cls.model_fields)
            return replace(fault, asked=asked, allowed=allowed, advice=advice)
        if top not in _HIDDEN_FIELDS:
            return fault
        return replace(fault, asked="a value not shown here", advice=_HIDDEN_FIELDS[top])

    def to_json(self) -> str:
        """The record as JSON text, which ``from_json`` reads."""
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The record that ``to_json`` wrote.

        Raises
        ------
        RequestError
            When the text is something else.
        """
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise RequestError(
                [Fault("text", "no JSON", "what to_json wrote", str(error))]
            ) from None
        if not isinstance(values, dict):
            asked = type(values).__name__
            raise RequestError([Fault("text", asked, "a JSON object, as to_json wrote it")])
        return cls(**values)


def validate_record(
    record: type[RecordT], values: Mapping[str, Any], prefix: str = ""
) -> tuple[RecordT | None, list[Fault]]:
    """A record of these values, or what is wrong with it.

    Parameters
    ----------
    record : type
        The kind of record.
    values : mapping of str to object
        Its fields.
    prefix : str
        Put before each path of a fault, with a dot.

    Returns
    -------
    made : Record or None
        None when there are faults.
    faults : list of Fault
    """
    try:
        return record(**{str(name): value for name, value in values.items()}), []
    except RequestError as error:
        before = f"{prefix}." if prefix else ""
        return None, [replace(fault, where=before + fault.where) for fault in error.faults]
