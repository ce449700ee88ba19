"""The text of a machine as JSON, with the line of every value, and all that is wrong with it."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

from hyperplane.asl.json_values import finite, no_constant

#: Levels of objects and lists in each other.
DEEPEST = 32

Place = tuple[str | int, ...]

_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder(parse_constant=no_constant, parse_float=finite)


class NotJson(ValueError):
    """The text stops being JSON at a line."""

    def __init__(self, line: int, wrong: str) -> None:
        super().__init__(wrong)
        self.line = line


@dataclass
class Scanned:
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
    lines: dict[Place, int] = field(default_factory=dict)
    twice: list[tuple[Place, int]] = field(default_factory=list)


def scan(text: str) -> Scanned:
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
    scanner = _Scanner(text)
    scanner.found.value = scanner.value((), scanner.blank(0))
    end = scanner.blank(scanner.position)
    if end != len(text):
        raise scanner.wrong(end, "something after the end of the JSON")
    return scanner.found


class _Scanner:
    """A recursive reader: the depth limit keeps it far from Python's own."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.found = Scanned()
        self.starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def line(self, position: int) -> int:
        return bisect_right(self.starts, position)

    def wrong(self, position: int, why: str) -> NotJson:
        return NotJson(self.line(position), why)

    def blank(self, position: int) -> int:
        found = _BLANK.match(self.text, position)
        return found.end() if found else position

    def expect(self, position: int, char: str, what: str) -> int:
        if not self.text.startswith(char, position):
            raise self.wrong(position, f"{self.shown(position)} where {what} may stand")
        return self.blank(position + 1)

    def shown(self, position: int) -> str:
        return repr(self.text[position]) if position < len(self.text) else "the end of the text"

    def value(self, place: Place, position: int) -> Any:
        self.found.lines[place] = self.line(position)
        start = self.text[position : position + 1]
        if start and start in "{[":
            if len(place) >= DEEPEST:
                raise self.wrong(position, f"nested deeper than {DEEPEST} levels")
            inner = self.blank(position + 1)
            return self.object(place, inner) if start == "{" else self.list(place, inner)
        return self.scalar(position)

    def scalar(self, position: int) -> Any:
        try:
            value, self.position = _DECODER.raw_decode(self.text, position)
        except json.JSONDecodeError as error:
            raise self.wrong(error.pos, f"{self.shown(error.pos)}: {error.msg}") from None
        except ValueError as error:
            raise self.wrong(position, str(error)) from None
        return value

    def object(self, place: Place, position: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not self.text.startswith("}", position):
            if found:
                position = self.expect(position, ",", "a comma or }")
            if not self.text.startswith('"', position):
                raise self.wrong(position, f"{self.shown(position)} where a name may stand")
            start = position
            name = self.scalar(position)
            inside = (*place, name)
            if name in found:
                self.found.twice.append((inside, self.line(start)))
            position = self.expect(self.blank(self.position), ":", "a colon")
            found[name] = self.value(inside, position)
            position = self.blank(self.position)
        self.position = position + 1
        return found

    def list(self, place: Place, position: int) -> list[Any]:
        found: list[Any] = []
        while not self.text.startswith("]", position):
            if found:
                position = self.expect(position, ",", "a comma or ]")
            found.append(self.value((*place, len(found)), position))
            position = self.blank(self.position)
        self.position = position + 1
        return found
