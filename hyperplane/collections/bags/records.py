"""Records from lines; what is no record is counted, and named when asked."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hyperplane.collections.bags.files import Part, Span
from hyperplane.collections.bags.lines import chunks, line_number
from hyperplane.collections.bags.messages import cut, places
from hyperplane.errors import BadLines, BadLinesWarning
from hyperplane.units import plural

#: Bad lines that pass in a small partition, as long as they are no more than half of it.
FEW = 10
_SPACE = " \t\r\n"

# One call of the scanner itself; json.loads spends as long again around it on a short line.
_scan: Any = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Source:
    """How the files of a bag are read."""

    store: Any = field(repr=False)  # its options may hold secrets
    kind: str
    encoding: str
    limit: float


class Bad(NamedTuple):
    """A line that is no record: so many lines after the one that begins at ``place``."""

    span: Span
    place: int
    after: int
    text: str
    reason: str


class Tally:
    """Counts the lines of a partition, and warns or raises when it ends."""

    def __init__(self, source: Source, part: Part) -> None:
        self.source, self.part = source, part
        self.good = self.bad = 0
        self.first: Bad | None = None

    def add(self, bad: Bad) -> None:
        """Count a bad line."""
        self.bad += 1
        self.first = self.first or bad

    def close(self) -> None:
        """Say what was left out; raise when it is more than the limit allows."""
        if self.first is None:
            return
        lines, limit = self.good + self.bad, self.source.limit
        allowed = max(limit * lines, min(FEW, lines // 2) if limit else 0)
        where = places([span.path for span in self.part])
        said = f"{self.bad} of {plural(lines, 'line')} left out of {where}"
        if self.bad > allowed:
            raise self._too_many(self.first, lines)
        first, span = self.first, self.first.span
        # Not read again from the start of a large file for a warning.
        at = f"near byte {first.place}" if span.start else f"line {self._number(first)}"
        _warn(f"{said}; the first: {at} of {span.path}, {first.reason}: {cut(first.text)!r}")

    def _number(self, bad: Bad) -> int:
        return line_number(self.source.store, bad.span, bad.place) + bad.after

    def _too_many(self, first: Bad, lines: int) -> BadLines:
        number = self._number(first)
        advice = "repair the file, or raise limit= if they may be left out"
        if first.text.lstrip().startswith("[") or first.text.strip() in {"{", "["}:
            advice = "write one whole object per line: an array or indented JSON is no JSON lines"
        return BadLines(
            f"{self.bad} of {plural(lines, 'line')} of a partition are no records, "
            f"which is more than limit={self.source.limit:g} allows; the first: "
            f"line {number} of {first.span.path}, {first.reason}: {cut(first.text)!r}; {advice}",
            first.span.path,
            number,
            self.bad,
            lines,
        )


def _warn(message: str) -> None:
    """Warn here and, from a worker, at the client."""
    distributed = sys.modules.get("distributed")
    warn: Callable[..., None] = distributed.warn if distributed else warnings.warn
    warn(message, BadLinesWarning)


def read_part(source: Source, part: Part) -> Iterator[Any]:
    """The records of a partition, as they are asked for."""
    tally = Tally(source, part)
    for span in part:
        for place, chunk in chunks(source.store, span):
            yield from parse(source, span, place, chunk, tally)
    tally.close()


def parse(source: Source, span: Span, place: int, chunk: bytes, tally: Tally) -> Iterator[Any]:
    """The records of a chunk of whole lines."""
    try:
        text = chunk.decode(source.encoding)
    except UnicodeDecodeError:
        text = None
    if text is None:
        for number, line in enumerate(_split(chunk, b"\n")):
            yield from _of_line(source, Bad(span, place, number, "", ""), line, tally)
        return
    lines = _split(text, "\n")
    if "\r" in text:
        lines = [line.removesuffix("\r") for line in lines]
    if source.kind == "text":
        tally.good += len(lines)
        yield from lines
    else:
        for number, line in enumerate(lines):
            try:
                record, end = _scan(line, 0)
            except (StopIteration, ValueError, RecursionError):
                record, end = None, -1
            if end == len(line) and type(record) is dict:
                tally.good += 1
                yield record
            else:
                yield from _unusual(Bad(span, place, number, line, ""), tally)


def _split(text: Any, mark: Any) -> list[Any]:
    """Lines without their ends; after the last line end there is no line."""
    lines: list[Any] = text.split(mark)
    if not lines[-1]:
        lines.pop()
    return lines


def _of_line(source: Source, bad: Bad, line: bytes, tally: Tally) -> Iterator[Any]:
    """The record of a line in a chunk that is not all of the encoding."""
    try:
        text = line.decode(source.encoding).removesuffix("\r")
    except UnicodeDecodeError as error:
        text = line.decode(source.encoding, errors="backslashreplace").rstrip("\r")
        tally.add(bad._replace(text=text, reason=f"not {source.encoding} ({error.reason})"))
        return
    if source.kind == "text":
        tally.good += 1
        yield text
    else:
        yield from _unusual(bad._replace(text=text), tally)


def _unusual(bad: Bad, tally: Tally) -> Iterator[dict[str, Any]]:
    """The record of a line that has spaces around it, is blank, or is none."""
    stripped = bad.text.strip(_SPACE)
    if not stripped:
        return
    record = _read_json(stripped)
    if isinstance(record, str):
        tally.add(bad._replace(reason=record))
    else:
        tally.good += 1
        yield record


def _read_json(text: str) -> dict[str, Any] | str:
    """An object, or why the text is none."""
    try:
        record = json.loads(text)
    except RecursionError:
        return "nested too deeply"
    except ValueError as error:
        return f"not JSON ({error})"
    if not isinstance(record, dict):
        return f"JSON, but no object but {_KINDS.get(type(record), 'null')}"
    return record


_KINDS = {list: "an array", str: "text", int: "a number", float: "a number", bool: "a truth value"}
