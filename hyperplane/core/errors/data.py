"""Errors and warnings of reading and saving data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hyperplane.core.errors.base import HyperplaneError


class DataError(HyperplaneError, ValueError):
    """The data does not match the arguments of the call; found while computing.

    Attributes
    ----------
    column : str
        Name of the column.
    """

    def __init__(self, column: str, message: str) -> None:
        super().__init__(f"column {column!r}: {message}")
        self.column = column


class ReadError(HyperplaneError, OSError):
    """A file cannot be read: missing, forbidden, damaged, truncated or of another format.

    Attributes
    ----------
    url : str
        URL of the file, without storage options.
    """

    def __init__(self, url: str, wrong: str) -> None:
        super().__init__(f"{url}: {wrong}")
        self.url = url


class SkippedFile(UserWarning):
    """A file, or the rest of a file, was skipped because of ``on_error="skip"``."""


class BadLines(HyperplaneError, ValueError):
    """A partition has more invalid lines than the limit allows.

    Attributes
    ----------
    file, line : str, int
        File and number, from 1, of the first invalid line.
    bad, lines : int
        Number of invalid lines, and of all lines that are not blank, in the partition.
    """

    def __init__(self, message: str, file: str, line: int, bad: int, lines: int) -> None:
        super().__init__(message)
        self.file, self.line, self.bad, self.lines = file, line, bad, lines


class BadLinesWarning(UserWarning):
    """Invalid lines of a partition were skipped; the message has their number."""


class WrongType(HyperplaneError, TypeError):
    """A value does not have the type of its column.

    Attributes
    ----------
    field : str
        Name of the column.
    value : str
        The value as JSON, truncated.
    where : str
        File and line, or partition.
    """

    def __init__(self, field: str, value: str, where: str, message: str) -> None:
        super().__init__(message)
        self.field, self.value, self.where = field, value, where


class StorageError(HyperplaneError, OSError):
    """Data cannot be saved, or saved data is missing or damaged.

    Attributes
    ----------
    url : str
        URL of the data, without credentials.
    """

    def __init__(self, url: str, wrong: str) -> None:
        super().__init__(f"{url}: {wrong}")
        self.url = url

    if not TYPE_CHECKING:
        # The first base has another __new__, which cannot create an object of OSError's layout.
        __new__ = OSError.__new__

    def __str__(self) -> str:
        # OSError.__str__ would format an error number.
        return str(self.args[0])


class OutputExists(StorageError, FileExistsError):
    """The target exists, and the mode does not allow replacing it."""


class OutputConflict(StorageError):
    """Another process has saved to the same target meanwhile; its data was kept."""
