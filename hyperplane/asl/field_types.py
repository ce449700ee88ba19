"""What may stand in the fields of a machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hyperplane.asl import templates
from hyperplane.asl.paths import JsonPath, PathSyntax, parse_path
from hyperplane.asl.timestamps import parse_timestamp

#: One more than the longest time and the most attempts that the language allows.
EXCLUSIVE_MAXIMUM = 99_999_999

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class FieldType:
    """What may stand in a field.

    Parameters
    ----------
    allowed : str
        In words.
    wrong : callable
        Says for a value why it may not stand there; empty text for "it may", ``"-"`` for "it
        may not, and ``allowed`` says it all".
    """

    allowed: str
    problem_with: Callable[[Any], str]


def _unless(test: Callable[[Any], bool]) -> Callable[[Any], str]:
    return lambda value: "" if test(value) else "-"


def whole_number(low: int, high: int = EXCLUSIVE_MAXIMUM - 1) -> FieldType:
    """A whole number between two, both included."""
    return FieldType(
        f"a whole number from {low} to {high}",
        _unless(lambda value: type(value) is int and low <= value <= high),
    )


def number(low: float, high: float | None = None) -> FieldType:
    """A number of at least ``low``, and at most ``high``."""
    return FieldType(
        f"a number of at least {low:g}" + (f" and at most {high:g}" if high is not None else ""),
        _unless(
            lambda value: is_number(value) and low <= value and (high is None or value <= high)
        ),
    )


def is_number(value: object) -> bool:
    """Whether a value is a number of JSON, which true and false are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def one_of(*names: str) -> FieldType:
    """One of some texts."""
    return FieldType(
        " or ".join(f'"{name}"' for name in names), _unless(lambda value: value in names)
    )


def _path(value: Any, fits: Callable[[JsonPath], bool], why: str) -> str:
    if not isinstance(value, str):
        return "-"
    try:
        return "" if fits(parse_path(value)) else why
    except PathSyntax as error:
        return str(error)


def _is_reference(path: JsonPath) -> bool:
    return path.reference and not path.context


_NO_REFERENCE = "it is a path, and no reference path: names and [0] only, from $"

TEXT = FieldType("text", _unless(lambda value: isinstance(value, str)))
BOOLEAN = FieldType("true or false", _unless(lambda value: isinstance(value, bool)))
NUMBER = FieldType("a number", _unless(is_number))
ANYTHING = FieldType("anything", _unless(lambda value: True))
OBJECT = FieldType("an object", _unless(lambda value: isinstance(value, dict)))
SECONDS = whole_number(1)
TIMESTAMP = FieldType(
    'a timestamp such as "2026-03-14T01:59:00Z"',
    _unless(lambda value: parse_timestamp(value) is not None),
)
RESOURCE = FieldType(
    "the ARN or another URI of the task, or its name",
    _unless(
        lambda value: (
            isinstance(value, str) and bool(_URI.fullmatch(value) or _NAME.fullmatch(value))
        )
    ),
)
PATH = FieldType('a path such as "$.orders[0]"', lambda value: _path(value, lambda path: True, ""))
NULLABLE_PATH = FieldType(
    'a path such as "$.orders[0]", or null',
    lambda value: "" if value is None else PATH.problem_with(value),
)
REFERENCE = FieldType(
    'a reference path such as "$.orders[0]"',
    lambda value: _path(value, _is_reference, _NO_REFERENCE),
)
NULLABLE_REFERENCE = FieldType(
    'a reference path such as "$.orders[0]", or null',
    lambda value: "" if value is None else REFERENCE.problem_with(value),
)
#: Where one value is compared with another, which may be of the context object.
COMPARED = FieldType(
    'a reference path such as "$.limit" or "$$.State.Name"',
    lambda value: _path(value, lambda path: path.reference, _NO_REFERENCE),
)
ERROR_TEXT = FieldType(
    "a reference path, or an intrinsic that makes a text",
    lambda value: (
        REFERENCE.problem_with(value)
        if not isinstance(value, str) or value.startswith("$")
        else templates.find_syntax_error(value)
    ),
)
