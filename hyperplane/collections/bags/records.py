"""Parse lines into records, and count and report bad lines."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hyperplane.collections.bags.files import BagPartition, TextByteRange
from hyperplane.collections.bags.lines import find_line_number, read_chunks
from hyperplane.core.errors import BadLines, BadLinesWarning
from hyperplane.core.units import plural

#: Bad lines that any limit but 0 allows, if they are at most half of the partition.
MIN_ALLOWED = 10
#: Maximum number of characters of a line or value in a message.
MAX_SHOWN = 80
_SPACE = " \t\r\n"
_JSON_NAMES = {
    list: "an array",
    str: "text",
    int: "a number",
    float: "a number",
    bool: "a boolean",
}

# Called directly, because json.loads takes twice as long for a short line.
_scan: Any = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


@dataclass(frozen=True)
class ReadSettings:
    """File system, format, encoding and maximum fraction of bad lines of a bag's files."""

    store: Any = field(repr=False)  # its options may hold secrets
    kind: str
    encoding: str
    limit: float


class BadLine(NamedTuple):
    """A line that is not a record.

    It is ``after`` lines below the line that begins at byte ``offset`` of the uncompressed file.
    """

    byte_range: TextByteRange
    offset: int
    after: int
    text: str
    reason: str


class LineCounter:
    """Counts the good and bad lines of a partition, and warns or raises at its end."""

    def __init__(self, settings: ReadSettings, part: BagPartition) -> None:
        self.settings, self.part = settings, part
        self.good = self.bad = 0
        self.first: BadLine | None = None

    def add(self, bad: BadLine) -> None:
        """Count a bad line."""
        self.bad += 1
        self.first = self.first or bad

    def close(self) -> None:
        """Warn about bad lines, or raise BadLines if they exceed the limit."""
        if self.first is None:
            return
        lines, limit = self.good + self.bad, self.settings.limit
        allowed = max(limit * lines, min(MIN_ALLOWED, lines // 2) if limit else 0)
        where = _describe_files([byte_range.name for byte_range in self.part])
        summary = f"{self.bad} of {plural(lines, 'line')} left out of {where}"
        if self.bad > allowed:
            raise self._make_error(self.first, lines)
        first, byte_range = self.first, self.first.byte_range
        # To find its line number, the file is read from its start: too slow for a warning.
        location = (
            f"near byte {first.offset}"
            if byte_range.start
            else f"line {self._find_line_number(first)}"
        )
        _warn(
            f"{summary}; the first is {location} of {byte_range.name}, {first.reason}: "
            f"{shorten(first.text)!r}"
        )

    def _find_line_number(self, bad: BadLine) -> int:
        return find_line_number(self.settings.store, bad.byte_range, bad.offset) + bad.after

    def _make_error(self, first: BadLine, lines: int) -> BadLines:
        number = self._find_line_number(first)
        advice = "repair the file, or raise limit= to allow leaving them out"
        if first.text.lstrip().startswith("[") or first.text.strip() in {"{", "["}:
            advice = "write one object per line: a JSON array or indented JSON is not JSON lines"
        return BadLines(
            f"{self.bad} of {plural(lines, 'line')} of a partition are bad, "
            f"more than limit={self.settings.limit:g} allows; the first is "
            f"line {number} of {first.byte_range.name}, {first.reason}: {shorten(first.text)!r}; "
            f"{advice}",
            first.byte_range.name,
            number,
            self.bad,
            lines,
        )


def shorten(text: str) -> str:
    """Return a text, truncated to at most ``MAX_SHOWN`` characters."""
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."


def _describe_files(files: Sequence[str]) -> str:
    """Return the first file of a partition and the number of others."""
    more = f" and {plural(len(files) - 1, 'more file')}" if len(files) > 1 else ""
    return f"{files[0]}{more}" if files else "no file"


def _warn(message: str) -> None:
    """Warn in this process and, if it is a worker, also at the client."""
    distributed = sys.modules.get("distributed")
    warn: Callable[..., None] = distributed.warn if distributed else warnings.warn
    warn(message, BadLinesWarning)


def read_partition(settings: ReadSettings, part: BagPartition) -> Iterator[Any]:
    """Yield the records of a partition, reading lazily."""
    counter = LineCounter(settings, part)
    for byte_range in part:
        for offset, chunk in read_chunks(settings.store, byte_range):
            yield from parse_lines(settings, byte_range, offset, chunk, counter)
    counter.close()


def parse_lines(
    settings: ReadSettings,
    byte_range: TextByteRange,
    offset: int,
    chunk: bytes,
    counter: LineCounter,
) -> Iterator[Any]:
    """Yield the records of a chunk of whole lines."""
    try:
        text = chunk.decode(settings.encoding)
    except UnicodeDecodeError:
        text = None
    if text is None:
        for number, line in enumerate(_split_lines(chunk, b"\n")):
            yield from _parse_bytes_line(
                settings, BadLine(byte_range, offset, number, "", ""), line, counter
            )
        return
    lines = _split_lines(text, "\n")
    if "\r" in text:
        lines = [line.removesuffix("\r") for line in lines]
    if settings.kind == "text":
        counter.good += len(lines)
        yield from lines
    else:
        for number, line in enumerate(lines):
            try:
                record, end = _scan(line, 0)
            except (StopIteration, ValueError, RecursionError):
                record, end = None, -1
            if end == len(line) and type(record) is dict:
                counter.good += 1
                yield record
            else:
                yield from _parse_unusual_line(
                    BadLine(byte_range, offset, number, line, ""), counter
                )


def _split_lines(text: Any, separator: Any) -> list[Any]:
    """Split into lines without line ends; nothing follows the last line end."""
    lines: list[Any] = text.split(separator)
    if not lines[-1]:
        lines.pop()
    return lines


def _parse_bytes_line(
    settings: ReadSettings, bad: BadLine, line: bytes, counter: LineCounter
) -> Iterator[Any]:
    """Yield the record of a line from a chunk that could not be decoded as a whole."""
    try:
        text = line.decode(settings.encoding).removesuffix("\r")
    except UnicodeDecodeError as error:
        text = line.decode(settings.encoding, errors="backslashreplace").rstrip("\r")
        counter.add(bad._replace(text=text, reason=f"not {settings.encoding} ({error.reason})"))
        return
    if settings.kind == "text":
        counter.good += 1
        yield text
    else:
        yield from _parse_unusual_line(bad._replace(text=text), counter)


def _parse_unusual_line(bad: BadLine, counter: LineCounter) -> Iterator[dict[str, Any]]:
    """Yield the record of a line with surrounding space; none if it is blank or bad."""
    stripped = bad.text.strip(_SPACE)
    if not stripped:
        return
    record = _parse_object(stripped)
    if isinstance(record, str):
        counter.add(bad._replace(reason=record))
    else:
        counter.good += 1
        yield record


def _parse_object(text: str) -> dict[str, Any] | str:
    """Return the JSON object, or the reason why the text is not one."""
    try:
        record = json.loads(text)
    except RecursionError:
        return "nested too deeply"
    except ValueError as error:
        return f"not JSON ({error})"
    if not isinstance(record, dict):
        return f"JSON, but {_JSON_NAMES.get(type(record), 'null')} instead of an object"
    return record
