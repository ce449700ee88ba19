"""Convert database errors to :class:`JobStoreError` with advice."""

from __future__ import annotations

from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from hyperplane.core.errors import JobStoreError

#: SQLite result codes, with the message to look for in errors of drivers that have no codes.
_FULL = (13, "database or disk is full")
_INPUT_OUTPUT = (10, "disk I/O error")
_DAMAGED = ((11, "malformed"), (26, "file is not a database"))
_CANNOT_OPEN = (14, "unable to open database file")


def store_error(url: URL, error: Exception) -> JobStoreError:
    """Convert an error of SQLAlchemy, or of reading a row, to a JobStoreError."""
    store_name = display_name(url)
    if not isinstance(error, SQLAlchemyError) or any(
        _has_result_code(error, code) for code in _DAMAGED
    ):
        return damaged_store_error(url, first_line(error))
    if _has_result_code(error, _FULL) or _has_result_code(error, _INPUT_OUTPUT):
        message = (
            f"cannot write ({first_line(error)}): free space on its disk; waiting jobs then "
            "continue"
        )
        return JobStoreError(store_name, message, passing=True)
    message = f"currently unavailable ({first_line(error)})"
    if _has_result_code(error, _CANNOT_OPEN):
        message += ": check that its folder exists, is writable and has free space"
    return JobStoreError(store_name, message, passing=True)


def is_file_error(error: Exception) -> bool:
    """Whether the store's file is damaged or its disk full; not, for example, a wrong URL."""
    if isinstance(error, UnicodeDecodeError):  # messages of SQLite may contain bytes of the file
        return True
    return isinstance(error, SQLAlchemyError) and any(
        _has_result_code(error, code) for code in (*_DAMAGED, _FULL, _INPUT_OUTPUT)
    )


def damaged_store_error(url: URL, reason: str) -> JobStoreError:
    """Return the error of a store whose content cannot be read."""
    store_name = display_name(url)
    if url.get_backend_name() != "sqlite":
        return JobStoreError(store_name, f"cannot read its content ({reason})", passing=False)
    advice = (
        f"move it away together with {store_name}-wal and {store_name}-shm, or recover it with: "
        f"sqlite3 {store_name} .recover | sqlite3 recovered.db. Logs and results of jobs remain in "
        "their folders, and running steps continue"
    )
    return JobStoreError(store_name, f"the file is damaged ({reason}); {advice}", passing=False)


def display_name(url: URL) -> str:
    """Return the file of a store, or its URL without the password."""
    if url.get_backend_name() == "sqlite" and url.database:
        return url.database
    return url.render_as_string(hide_password=True)


def first_line(error: BaseException) -> str:
    """Return the first line of the database's or driver's message."""
    original = getattr(error, "orig", None) or error
    return (f"{original}".splitlines() or [type(original).__name__])[0][:200]


def _has_result_code(error: Exception, wanted: tuple[int, str]) -> bool:
    """Whether an error has a result code of SQLite, or its message if the driver has no codes."""
    original = getattr(error, "orig", None)
    code = getattr(original, "sqlite_errorcode", None)
    # The lowest byte is the primary code, the others extend it.
    return wanted[1] in str(original) if code is None else code & 0xFF == wanted[0]
