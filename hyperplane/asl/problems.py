"""Collection of the problems of a machine, each with its location."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hyperplane.asl.fields import UNSUPPORTED_FIELDS, Fields
from hyperplane.asl.strict_json import JsonLocation
from hyperplane.core.errors import Fault
from hyperplane.core.public_calls import nearest

#: Number of problems after which unknown fields get no advice, because searching for similar
#: names takes time.
_MAX_ADVISED = 100
#: Maximum number of fields that a message lists: a rule of a Choice has more than forty.
_MAX_LISTED = 30
#: Maximum number of states that a message lists.
_MAX_LISTED_STATES = 10
#: Number of pairs of an unknown state and a state after which no similar states are searched: these
#: take 1 s of CPU time.
_MAX_COMPARED_STATES = 10_000


def format_location(location: JsonLocation) -> str:
    """Format a location as text.

    Examples
    --------
    >>> format_location(("States", "Fan", "Branches", 0, "StartAt"))
    'States.Fan.Branches[0].StartAt'
    """
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the machine"


def format_value(value: Any) -> str:
    """Format a value as JSON, truncated."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    text = text.encode(errors="replace").decode()  # lone surrogates cannot be printed
    return text if len(text) <= 80 else text[:77] + "..."


@dataclass(frozen=True)
class Problem:
    """A fault and its location; ``doubt`` marks faults that do not prevent an execution."""

    location: JsonLocation
    asked: str
    allowed: str
    advice: str = ""
    doubt: bool = False

    def to_fault(self, source: str = "") -> Fault:
        """Convert to a Fault with the location as text."""
        return Fault(format_location(self.location), self.asked, self.allowed, self.advice, source)


@dataclass
class ProblemCollector:
    """Collects problems while a machine is checked."""

    problems: list[Problem] = field(default_factory=list)

    def add(
        self,
        location: JsonLocation,
        asked: str,
        allowed: str,
        advice: str = "",
        doubt: bool = False,
    ) -> None:
        """Add a problem; ``asked`` is the invalid value as text."""
        self.problems.append(Problem(location, asked, allowed, advice, doubt))

    def add_unknown_state(
        self, location: JsonLocation, target: str, allowed: str, states: Iterable[str]
    ) -> None:
        """Add a problem for the name of a state that is none, with the names that are."""
        names = list(states)
        is_searched = len(names) * (len(self.problems) + 1) <= _MAX_COMPARED_STATES
        near = nearest(target, names) if is_searched else []
        advice = f"did you mean {' or '.join(near)}?" if near else ""
        if not near and 0 < len(names) <= _MAX_LISTED_STATES:
            advice = f"the states there are {', '.join(names)}"
        self.add(location, format_value(target), allowed, advice)

    def check_object(self, value: Any, location: JsonLocation) -> bool:
        """Whether a value is an object; add a problem if it is not."""
        if not isinstance(value, dict):
            self.add(location, format_value(value), "an object")
        return isinstance(value, dict)

    def check_fields(self, holder: dict[str, Any], location: JsonLocation, known: Fields) -> None:
        """Add problems for unknown fields and invalid values."""
        for name, value in holder.items():
            field_type = known.get(name)
            if field_type is None:
                advice = _advise_field(name, known) if len(self.problems) < _MAX_ADVISED else ""
                self.add((*location, name), format_value(value), "no such field here", advice)
            elif why := field_type.problem_with(value):
                self.add(
                    (*location, name),
                    format_value(value),
                    field_type.allowed,
                    "" if why == "-" else why,
                )

    def check_required(
        self, holder: dict[str, Any], location: JsonLocation, names: Iterable[str]
    ) -> None:
        """Add problems for missing required fields."""
        for name in names:
            if name not in holder:
                self.add((*location, name), "nothing", "a value; this field is required")

    def check_at_most_one(
        self, holder: dict[str, Any], location: JsonLocation, names: tuple[str, ...]
    ) -> None:
        """Add a problem if more than one of several fields is present."""
        present = [name for name in names if name in holder]
        if len(present) > 1:
            self.add(location, " and ".join(present), f"only one of {', '.join(names)}")

    def check_exactly_one(
        self, holder: dict[str, Any], location: JsonLocation, names: tuple[str, ...]
    ) -> None:
        """Add a problem unless exactly one of several fields is present."""
        self.check_at_most_one(holder, location, names)
        if not any(name in holder for name in names):
            self.add(location, "none of them", f"one of {', '.join(names)}")

    def read_objects(
        self, value: Any, location: JsonLocation
    ) -> list[tuple[JsonLocation, dict[str, Any]]]:
        """Return the objects of a list with their locations; add problems for other values."""
        if not isinstance(value, list) or not value:
            self.add(location, format_value(value), "a list of at least one object")
            return []
        locations = [((*location, number), item) for number, item in enumerate(value)]
        return [(inside, item) for inside, item in locations if self.check_object(item, inside)]


def _advise_field(name: str, known: Fields) -> str:
    """Return what replaces an unknown field: another one, the most similar one, or all fields."""
    if name in UNSUPPORTED_FIELDS:
        return UNSUPPORTED_FIELDS[name]
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"expected one of {', '.join(known)}" if len(known) <= _MAX_LISTED else ""
