"""The faults of a machine as they are found, each with its place."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hyperplane.asl.fields import UNSUPPORTED_FIELDS, Fields
from hyperplane.asl.json_parser import JsonLocation
from hyperplane.errors import Fault

#: Faults after which no names are compared, which takes time.
_MAX_ADVISED = 100


def format_location(place: JsonLocation) -> str:
    """A place as one writes it.

    Examples
    --------
    >>> where(("States", "Fan", "Branches", 0, "StartAt"))
    'States.Fan.Branches[0].StartAt'
    """
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the machine"


def format_value(value: Any) -> str:
    """A value as JSON, shortened."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    text = text.encode(errors="replace").decode()  # half a surrogate pair cannot be printed
    return text if len(text) <= 80 else text[:77] + "..."


@dataclass(frozen=True)
class Problem:
    """A fault and its place; a machine with mere ``doubt`` can run all the same."""

    place: JsonLocation
    asked: str
    allowed: str
    advice: str = ""
    doubt: bool = False

    def to_fault(self, source: str = "") -> Fault:
        """As callers get it."""
        return Fault(format_location(self.place), self.asked, self.allowed, self.advice, source)


@dataclass
class ProblemCollector:
    """Collects what is wrong."""

    problems: list[Problem] = field(default_factory=list)

    def add(
        self, place: JsonLocation, asked: str, allowed: str, advice: str = "", doubt: bool = False
    ) -> None:
        """One more fault; ``asked`` is text already."""
        self.problems.append(Problem(place, asked, allowed, advice, doubt))

    def check_object(self, value: Any, place: JsonLocation) -> bool:
        """Whether it is an object; a fault when it is not."""
        if not isinstance(value, dict):
            self.add(place, format_value(value), "an object")
        return isinstance(value, dict)

    def check_fields(self, holder: dict[str, Any], place: JsonLocation, known: Fields) -> None:
        """Fields that are not known, and values that may not stand in theirs."""
        for name, value in holder.items():
            field_type = known.get(name)
            if field_type is None:
                advice = _advice(name, known) if len(self.problems) < _MAX_ADVISED else ""
                self.add((*place, name), format_value(value), "no such field here", advice)
            elif why := field_type.problem_with(value):
                self.add(
                    (*place, name),
                    format_value(value),
                    field_type.allowed,
                    "" if why == "-" else why,
                )

    def check_required(
        self, holder: dict[str, Any], place: JsonLocation, names: Iterable[str]
    ) -> None:
        """Fields that must be there."""
        for name in names:
            if name not in holder:
                self.add((*place, name), "nothing", "a value; this field must be there")

    def check_at_most_one(
        self, holder: dict[str, Any], place: JsonLocation, names: tuple[str, ...]
    ) -> None:
        """Fields that exclude each other."""
        there = [name for name in names if name in holder]
        if len(there) > 1:
            self.add(place, " and ".join(there), f"only one of {', '.join(names)}")

    def check_exactly_one(
        self, holder: dict[str, Any], place: JsonLocation, names: tuple[str, ...]
    ) -> None:
        """Fields of which one must be there."""
        self.check_at_most_one(holder, place, names)
        if not any(name in holder for name in names):
            self.add(place, "none of them", f"one of {', '.join(names)}")

    def read_objects(
        self, value: Any, place: JsonLocation
    ) -> list[tuple[JsonLocation, dict[str, Any]]]:
        """The objects of a list that must hold something, with their places."""
        if not isinstance(value, list) or not value:
            self.add(place, format_value(value), "a list of at least one object")
            return []
        places = [((*place, number), one) for number, one in enumerate(value)]
        return [(inside, one) for inside, one in places if self.check_object(one, inside)]


def _advice(name: str, known: Fields) -> str:
    if name in UNSUPPORTED_FIELDS:
        return UNSUPPORTED_FIELDS[name]
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else ""
