"""What is wrong with data and files, and with saving them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hyperplane.errors.requests import HyperplaneError


class DataError(HyperplaneError, ValueError):
    """The data is not what the call says, which only a look at all of it could show.

    Attributes
    ----------
    column : str
        The column.
    """

    def __init__(self, column: str, message: str) -> None:
        super().__init__(f"column {column!r}: {message}")
        self.column = column


class ReadError(HyperplaneError, OSError):
    """A file cannot be read: gone, forbidden, damaged, cut off, or not what its name says.

    Attributes
    ----------
    url : str
        The file, as the store names it; without the store's options.
    """

    def __init__(self, url: str, wrong: str) -> None:
        super().__init__(f"{url}: {wrong}")
        self.url = url


class SkippedFile(UserWarning):
    """A file, or the rest of one, is left out because ``on_error="skip"`` says so."""


class BadLines(HyperplaneError, ValueError):
    """More lines of a partition are no records than the limit allows.

    Attributes
    ----------
    file, line : str, int
        The file of the first bad line, and its number there, from 1.
    bad, lines : int
        Bad lines, and all lines that are not blank, of the partition.
    """

    def __init__(self, message: str, file: str, line: int, bad: int, lines: int) -> None:
        super().__init__(message)
        self.file, self.line, self.bad, self.lines = file, line, bad, lines


class BadLinesWarning(UserWarning):
    """Some lines of a partition are no records and were left out; the message counts them."""


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


class StorageError(HyperplaneError, OSError):
    """Something cannot be saved, or not be found again as it was saved.

    Attributes
    ----------
    url : str
        Where; without what may be secret in it.
    """

    def __init__(self, url: str, wrong: str) -> None:
        super().__init__(f"{url}: {wrong}")
        self.url = url

    if not TYPE_CHECKING:
        # Python finds the first parent's, which cannot make an object with this one's layout.
        __new__ = OSError.__new__

    def __str__(self) -> str:
        # OSError would answer with an error number.
        return str(self.args[0])


class OutputExists(StorageError, FileExistsError):
    """There is something else already, and the mode does not say to replace it."""


class OutputConflict(StorageError):
    """Somebody else has saved there meanwhile; what they saved stands."""
