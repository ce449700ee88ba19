"""Secrets that a step has printed are taken out of its log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

#: Shorter ones would take half of the log with them.
_SHORTEST = 6
_BLOCK = 1 << 20


def redact(log: Path, values: Sequence[str]) -> None:
    """Put stars in the place of values in a log that nobody writes to any more."""
    hidden = sorted({value.encode() for value in values if len(value) >= _SHORTEST}, key=len)
    if not hidden or not log.exists():
        return
    overlap = len(hidden[-1]) - 1
    with log.open("r+b") as opened:
        place = 0
        while len(block := _at(opened, place)) > (overlap if place else 0):
            clean = block
            for value in reversed(hidden):
                clean = clean.replace(value, b"*" * len(value))
            if clean != block:
                opened.seek(place)
                opened.write(clean)
            place += max(1, len(block) - overlap)


def _at(opened: BinaryIO, place: int) -> bytes:
    opened.seek(place)
    return opened.read(_BLOCK)
