"""The text of a machine as JSON, with the line of every value, and all that is wrong with it."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

from hyperplane.asl.json_values import parse_finite, reject_constant

#: Levels of objects and lists in each other.
MAX_DEPTH = 32

JsonLocation = tuple[str | int, ...]

_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder(parse_constant=reject_constant, parse_float=parse_finite)


class JsonSyntaxError(ValueError):
    """The text stops being JSON at a line."""

    def __init__(self, line: int, wrong: str) -> None:
        super().__init__(wrong)
        self.line = line


@dataclass
class JsonDocument:
    """JSON and where its parts stand.

    Parameters
    ----------
    value : JSON
        What the text says; of fields that are there twice, the last.
    lines : dict
        Place of a value to its line, from 1.
    twice : list
        Places of fields that are there already.
    """

    value: Any = None
    lines: dict[JsonLocation, int] = field(default_factory=dict)
    duplicates: list[tuple[JsonLocation, int]] = field(default_factory=list)


def parse_with_lines(text: str) -> JsonDocument:
    r"""Read JSON text and remember the lines.

    Parameters
    ----------
    text : str
        All of it.

    Returns
    -------
    Scanned

    Raises
    ------
    NotJson
        A ``ValueError`` with ``.line``: not JSON, or deeper than 32 levels.

    Examples
    --------
    >>> scan('{"a":\n [1, 2]}').lines[("a", 1)]
    2
    """
    parser = _JsonParser(text)
    parser.found.value = parser.parse_value((), parser.skip_blanks(0))
    end = parser.skip_blanks(parser.position)
    if end != len(text):
        raise parser.error(end, "something after the end of the JSON")
    return parser.found


class _JsonParser:
    """A recursive reader: the depth limit keeps it far from Python's own."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.found = JsonDocument()
        self.starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def line_at(self, position: int) -> int:
        return bisect_right(self.starts, position)

    def error(self, position: int, why: str) -> JsonSyntaxError:
        return JsonSyntaxError(self.line_at(position), why)

    def skip_blanks(self, position: int) -> int:
        found = _BLANK.match(self.text, position)
        return found.end() if found else position

    def expect(self, position: int, char: str, what: str) -> int:
        if not self.text.startswith(char, position):
            raise self.error(position, f"{self.show_character(position)} where {what} may stand")
        return self.skip_blanks(position + 1)

    def show_character(self, position: int) -> str:
        return repr(self.text[position]) if position < len(self.text) else "the end of the text"

    def parse_value(self, place: JsonLocation, position: int) -> Any:
        self.found.lines[place] = self.line_at(position)
        start = self.text[position : position + 1]
        if start and start in "{[":
            if len(place) >= MAX_DEPTH:
                raise self.error(position, f"nested deeper than {MAX_DEPTH} levels")
            inner = self.skip_blanks(position + 1)
            return (
                self.parse_object(place, inner) if start == "{" else self.parse_list(place, inner)
            )
        return self.parse_scalar(position)

    def parse_scalar(self, position: int) -> Any:
        try:
            value, self.position = _DECODER.raw_decode(self.text, position)
        except json.JSONDecodeError as error:
            raise self.error(error.pos, f"{self.show_character(error.pos)}: {error.msg}") from None
        except ValueError as error:
            raise self.error(position, str(error)) from None
        return value

    def parse_object(self, place: JsonLocation, position: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not self.text.startswith("}", position):
            if found:
                position = self.expect(position, ",", "a comma or }")
            if not self.text.startswith('"', position):
                raise self.error(
                    position, f"{self.show_character(position)} where a name may stand"
                )
            start = position
            name = self.parse_scalar(position)
            inside = (*place, name)
            if name in found:
                self.found.duplicates.append((inside, self.line_at(start)))
            position = self.expect(self.skip_blanks(self.position), ":", "a colon")
            found[name] = self.parse_value(inside, position)
            position = self.skip_blanks(self.position)
        self.position = position + 1
        return found

    def parse_list(self, place: JsonLocation, position: int) -> list[Any]:
        found: list[Any] = []
        while not self.text.startswith("]", position):
            if found:
                position = self.expect(position, ",", "a comma or ]")
            found.append(self.parse_value((*place, len(found)), position))
            position = self.skip_blanks(self.position)
        self.position = position + 1
        return found
