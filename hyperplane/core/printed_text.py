"""Print text that a program can do without: a failed write is no error."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TextIO

from hyperplane.core.notebook_output import show_note


def print_text(text: str, stream: TextIO | None) -> None:
    """Write a text to a standard stream, unless that is closed or nothing reads it any more.

    Characters that the stream cannot encode are escaped. None is the stream of a program that was
    started with a closed descriptor.
    """
    if stream is None:
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    with suppress(OSError, ValueError):  # a broken pipe, a full disk; a closed file
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()


def print_note(text: str) -> None:
    """Print a note to standard error; in a notebook it is a plain output of the cell."""
    if not show_note(text):
        print_text(f"{text}\n", sys.stderr)
