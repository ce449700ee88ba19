"""How messages name what is wrong with records."""

from __future__ import annotations

from collections.abc import Sequence

#: Characters of a bad line or value that a message shows.
SHOWN = 80


def shorten(text: str) -> str:
    """A text, cut to what a message can hold."""
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def describe_files(files: Sequence[str]) -> str:
    """The files of a partition in a few words."""
    more = f" and {len(files) - 1} files more" if len(files) > 1 else ""
    return f"{files[0]}{more}" if files else "no file"
