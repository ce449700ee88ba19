"""Types of the fields of a machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hyperplane.asl.json_path import JsonPath, PathSyntax, parse_path
from hyperplane.asl.payload_templates import find_syntax_error
from hyperplane.asl.strict_json import is_number
from hyperplane.asl.timestamps import parse_timestamp

#: Limit of seconds and attempts in the language; values must be lower.
EXCLUSIVE_MAXIMUM = 99_999_999

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class FieldType:
    """Description of the values that a field may have, and a check of a value.

    The check returns the reason why a value is invalid, ``"-"`` if ``allowed`` already states it,
    and an empty text for a valid value.
    """

    allowed: str
    problem_with: Callable[[Any], str]


def _valid_if(test: Callable[[Any], bool]) -> Callable[[Any], str]:
    """Return a check of a :class:`FieldType` for values that pass a test."""
    return lambda value: "" if test(value) else "-"


def whole_number(low: int, high: int = EXCLUSIVE_MAXIMUM - 1) -> FieldType:
    """Type of integers from ``low`` to ``high``, both included."""
    return FieldType(
        f"a whole number from {low} to {high}",
        _valid_if(lambda value: type(value) is int and low <= value <= high),
    )


def number(low: float, high: float | None = None) -> FieldType:
    """Type of numbers from ``low`` to ``high``, both included."""
    return FieldType(
        f"a number of at least {low:g}" + (f" and at most {high:g}" if high is not None else ""),
        _valid_if(
            lambda value: is_number(value) and low <= value and (high is None or value <= high)
        ),
    )


def one_of(*names: str) -> FieldType:
    """Type of texts from a list."""
    return FieldType(
        " or ".join(f'"{name}"' for name in names), _valid_if(lambda value: value in names)
    )


def _path(value: Any, fits: Callable[[JsonPath], bool], why: str) -> str:
    if not isinstance(value, str):
        return "-"
    try:
        return "" if fits(parse_path(value)) else why
    except PathSyntax as error:
        return str(error)


_NO_REFERENCE = (
    "a reference path starts with $ and has only names and non-negative indexes such as [0]"
)


def _input_reference(value: Any) -> str:
    """Return why a value is no reference path in the input of the state; empty if it is one."""
    return _path(value, lambda path: not path.context, "a path from $$ is not accepted here") or (
        _path(value, lambda path: path.reference, _NO_REFERENCE)
    )


TEXT = FieldType("text", _valid_if(lambda value: isinstance(value, str)))
BOOLEAN = FieldType("true or false", _valid_if(lambda value: isinstance(value, bool)))
NUMBER = FieldType("a number", _valid_if(is_number))
ANYTHING = FieldType("anything", _valid_if(lambda value: True))
OBJECT = FieldType("an object", _valid_if(lambda value: isinstance(value, dict)))
SECONDS = whole_number(1)
TIMESTAMP = FieldType(
    'a timestamp such as "2026-03-14T01:59:00Z"',
    _valid_if(lambda value: parse_timestamp(value) is not None),
)
RESOURCE = FieldType(
    "the ARN or another URI of the task, or its name",
    _valid_if(
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
REFERENCE = FieldType('a reference path such as "$.orders[0]"', _input_reference)
NULLABLE_REFERENCE = FieldType(
    'a reference path such as "$.orders[0]", or null',
    lambda value: "" if value is None else REFERENCE.problem_with(value),
)
#: Path of the second value of a comparison, which may be in the context object.
COMPARED = FieldType(
    'a reference path such as "$.limit" or "$$.State.Name"',
    lambda value: _path(value, lambda path: path.reference, _NO_REFERENCE),
)
ERROR_TEXT = FieldType(
    "a reference path, or an intrinsic function that returns a text",
    lambda value: (
        REFERENCE.problem_with(value)
        if not isinstance(value, str) or value.startswith("$")
        else find_syntax_error(value)
    ),
)
