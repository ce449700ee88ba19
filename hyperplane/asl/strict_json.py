"""Parse and copy strict JSON, with the line of each value and duplicate fields; JSON types."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

#: Maximum nesting of objects and lists.
MAX_DEPTH = 32

JsonLocation = tuple[str | int, ...]

_BLANK = re.compile(r"[ \t\n\r]*")


def parse_json(text: str | bytes) -> Any:
    """Parse JSON text; raise ValueError for invalid JSON, NaN, infinity and deep nesting.

    Examples
    --------
    >>> parse_json('{"a": [1, 2.5, null]}')
    {'a': [1, 2.5, None]}
    """
    try:
        return json.loads(text, parse_constant=_reject_constant, parse_float=_parse_finite)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("the text is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"invalid JSON: {error}") from None


def _reject_constant(name: str) -> Any:
    """Refuse ``NaN`` and ``Infinity``, which Python's decoder accepts."""
    raise ValueError(f"{name} is not JSON")


def _parse_finite(digits: str) -> float:
    """Parse a float; refuse numbers that overflow to infinity."""
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:20]} is too large a number")
    return number


def copy_json(value: Any) -> Any:
    """Copy a value as JSON would represent it; raise ValueError if it cannot.

    Examples
    --------
    >>> copy_json({"a": (1, 2)})
    {'a': [1, 2]}
    """
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{type(value).__name__} is not JSON: {error}") from None


def is_number(value: object) -> bool:
    """Whether a value is a JSON number, but not true or false."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def json_type(value: object) -> str:
    """Return the JSON type of a value, with an article, for messages.

    Examples
    --------
    >>> json_type({}), json_type(True), json_type(None)
    ('an object', 'a boolean', 'null')
    """
    names = {bool: "a boolean", str: "a text", list: "an array", dict: "an object"}
    return "null" if value is None else names.get(type(value), "a number")


def copy_json_to_depth(value: Any, max_depth: int) -> Any:
    """Copy a value like :func:`copy_json`; raise ValueError beyond ``max_depth`` levels.

    Examples
    --------
    >>> copy_json_to_depth({"a": [1]}, 2)
    {'a': [1]}
    """
    copy = copy_json(value)
    level = [copy]
    for _ in range(max_depth + 1):
        level = [node for node in level if isinstance(node, (dict, list))]
        if not level:
            return copy
        level = [
            inner for node in level for inner in (node.values() if isinstance(node, dict) else node)
        ]
    raise ValueError(f"it is nested deeper than {max_depth} levels")


_DECODER = json.JSONDecoder(parse_constant=_reject_constant, parse_float=_parse_finite)


#: Messages of Python's decoder -> what follows the character in ours.
_DECODER_MESSAGES = {
    "Expecting value": " in place of a value",
    "Invalid control character at": " in a text, where JSON has an escape such as \\n",
    "Unterminated string starting at": " begins a text that has no end",
    "Invalid \\escape": " begins an escape that JSON does not have",
    "Invalid \\uXXXX escape": " is not followed by four hexadecimal digits",
}


class JsonSyntaxError(ValueError):
    """The text is not valid JSON; ``line`` is the line of the error."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass
class JsonDocument:
    """Parsed JSON with the line of each location, and the duplicate fields with their lines.

    Of duplicate fields, ``value`` has the last one.
    """

    value: Any = None
    lines: dict[JsonLocation, int] = field(default_factory=dict)
    duplicates: list[tuple[JsonLocation, int]] = field(default_factory=list)


def parse_with_lines(text: str) -> JsonDocument:
    r"""Parse JSON text; raise JsonSyntaxError if it is invalid or nested too deeply.

    Examples
    --------
    >>> parse_with_lines('{"a":\n [1, 2]}').lines[("a", 1)]
    2
    """
    parser = _JsonParser(text)
    parser.document.value = parser.parse_value((), parser.skip_blanks(0))
    end = parser.skip_blanks(parser.position)
    if end != len(text):
        raise parser.error(end, "text after the end of the JSON document")
    return parser.document


class _JsonParser:
    """Recursive-descent parser; MAX_DEPTH keeps it below Python's recursion limit."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.document = JsonDocument()
        self.starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def line_at(self, position: int) -> int:
        return bisect_right(self.starts, position)

    def error(self, position: int, why: str) -> JsonSyntaxError:
        return JsonSyntaxError(self.line_at(position), why)

    def skip_blanks(self, position: int) -> int:
        match = _BLANK.match(self.text, position)
        return match.end() if match else position

    def expect(self, position: int, char: str, expected: str) -> int:
        if not self.text.startswith(char, position):
            raise self.error(position, f"{self.show_character(position)} in place of {expected}")
        return self.skip_blanks(position + 1)

    def show_character(self, position: int) -> str:
        return repr(self.text[position]) if position < len(self.text) else "the end of the text"

    def parse_value(self, location: JsonLocation, position: int) -> Any:
        self.document.lines[location] = self.line_at(position)
        start = self.text[position : position + 1]
        if start and start in "{[":
            if len(location) >= MAX_DEPTH:
                raise self.error(position, f"nested deeper than {MAX_DEPTH} levels")
            inner = self.skip_blanks(position + 1)
            return (
                self.parse_object(location, inner)
                if start == "{"
                else self.parse_list(location, inner)
            )
        return self.parse_scalar(position)

    def parse_scalar(self, position: int) -> Any:
        try:
            value, self.position = _DECODER.raw_decode(self.text, position)
        except json.JSONDecodeError as error:
            why = _DECODER_MESSAGES.get(error.msg, error.msg)
            raise self.error(error.pos, f"{self.show_character(error.pos)}{why}") from None
        except ValueError as error:
            raise self.error(position, str(error)) from None
        return value

    def parse_object(self, location: JsonLocation, position: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        while not self.text.startswith("}", position):
            if members:
                position = self.expect(position, ",", "a comma or }")
            if not self.text.startswith('"', position):
                found = self.show_character(position)
                raise self.error(position, f"{found} in place of a name in double quotes")
            start = position
            name = self.parse_scalar(position)
            inside = (*location, name)
            if name in members:
                self.document.duplicates.append((inside, self.line_at(start)))
            position = self.expect(self.skip_blanks(self.position), ":", "a colon")
            members[name] = self.parse_value(inside, position)
            position = self.skip_blanks(self.position)
        self.position = position + 1
        return members

    def parse_list(self, location: JsonLocation, position: int) -> list[Any]:
        items: list[Any] = []
        while not self.text.startswith("]", position):
            if items:
                position = self.expect(position, ",", "a comma or ]")
            items.append(self.parse_value((*location, len(items)), position))
            position = self.skip_blanks(self.position)
        self.position = position + 1
        return items
