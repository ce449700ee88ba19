"""Read the end of a step's log."""

from __future__ import annotations

import os
import re
from pathlib import Path

from hyperplane.jobs.step_wrapper import PREFACE_SUFFIX

#: Bytes at the end of a log from which a failure is classified.
_TAIL_BYTES = 8192
#: Bytes at the end of a log that are read first.
_BLOCK_BYTES = 1 << 16
_COLORS = re.compile(r"\x1b\[[0-9;]*m")


def begin_log(log: Path, preface: str) -> None:
    """Create the log of an attempt: reading it while the step waits is no error."""
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    content = preface.encode(errors="replace")
    log.write_bytes(content)
    if content:  # also in its own file: Slurm truncates the log, and a pod's log has no preface
        log.with_suffix(PREFACE_SUFFIX).write_bytes(content)


def _find_output(log: Path) -> int:
    """Return where the output of the program begins in a log."""
    try:
        content = log.with_suffix(PREFACE_SUFFIX).read_bytes()
        with log.open("rb") as opened:
            return len(content) if opened.read(len(content)) == content else 0
    except OSError:  # most logs have no preface
        return 0


def read_tail(log: Path, after_preface: bool = False) -> str:
    """Return the end of a log without color codes, at most all that follows the preface."""
    first = _find_output(log) if after_preface else 0
    try:
        with log.open("rb") as opened:
            opened.seek(max(first, opened.seek(0, 2) - _TAIL_BYTES))
            return _COLORS.sub("", opened.read().decode(errors="replace"))
    except OSError:
        return ""


def read_last_lines(log: Path, lines: int | None = None, most_bytes: int | None = None) -> str:
    """Return the last lines of a log, by default all.

    Reads no more of the file than needed, and at most its last ``most_bytes`` bytes, in which the
    first line may lack its beginning. Raises OSError if the log cannot be read.
    """
    with log.open("rb") as opened:
        if lines is None:
            return opened.read().decode(errors="replace")
        size, block = opened.seek(0, os.SEEK_END), _BLOCK_BYTES
        most = size if most_bytes is None else min(size, most_bytes)
        while True:
            opened.seek(max(0, size - min(block, most)))
            tail = opened.read(min(block, most)).splitlines()
            # One more, for the first may have lost its beginning.
            if len(tail) > lines or block >= most:
                last = tail[max(0, len(tail) - lines) :]
                return "\n".join(line.decode(errors="replace") for line in last)
            block *= 2
