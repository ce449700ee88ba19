"""Formatting of values and file names in messages."""

from __future__ import annotations

from collections.abc import Sequence

#: Maximum number of characters of a line or value in a message.
SHOWN = 80


def shorten(text: str) -> str:
    """Return a text, truncated to at most ``SHOWN`` characters."""
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def describe_files(files: Sequence[str]) -> str:
    """Return the first file of a partition and the number of others."""
    more = f" and {len(files) - 1} more files" if len(files) > 1 else ""
    return f"{files[0]}{more}" if files else "no file"
