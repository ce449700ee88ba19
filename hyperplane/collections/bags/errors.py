"""What can be wrong with records: lines, files and types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hyperplane.errors import HyperplaneError

#: Characters of a bad line or value that a message shows.
SHOWN = 80


class BadLinesWarning(UserWarning):
    """Some lines of a partition are no records and were left out; the message counts them."""


class BadLines(HyperplaneError, ValueError):
    """More lines of a partition are no records than the limit allows.

    Attributes
    ----------
    file : str
        The file of the first bad line.
    line : int
        Its number in that file, from 1.
    bad, lines : int
        Bad lines, and all lines that are not blank, of the partition.
    """

    def __init__(self, message: str, file: str, line: int, bad: int, lines: int) -> None:
        super().__init__(message)
        self.file, self.line, self.bad, self.lines = file, line, bad, lines


class UnreadableFile(HyperplaneError, OSError):
    """A file cannot be read to its end: gone, forbidden, truncated or not what its name says.

    Attributes
    ----------
    file : str
        Path of the file on its store.
    """

    def __init__(self, file: str, what: str) -> None:
        super().__init__(f"{file} cannot be read: {what}")
        self.file = file

    if not TYPE_CHECKING:
        # Python finds the first parent's, which cannot make an object with this one's layout.
        __new__ = OSError.__new__


class WrongType(HyperplaneError, TypeError):
    """A value is not of the type that its column has.

    Attributes
    ----------
    field : str
        Name of the column.
    value : str
        The value as JSON, shortened.
    where : str
        The file and line, or the partition.
    """

    def __init__(self, field: str, value: str, where: str, message: str) -> None:
        super().__init__(message)
        self.field, self.value, self.where = field, value, where


def cut(text: str) -> str:
    """A text, cut to what a message can hold."""
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def places(files: Sequence[str]) -> str:
    """The files of a partition in a few words."""
    more = f" and {len(files) - 1} files more" if len(files) > 1 else ""
    return f"{files[0]}{more}" if files else "no file"
