"""Errors of the job store in the words of this package, with what to do."""

from __future__ import annotations

from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from hyperplane.errors import JobStoreError

#: Result codes of SQLite, with the text that Pythons before 3.11 give in their place.
_FULL = (13, "database or disk is full")
_INPUT_OUTPUT = (10, "disk I/O error")
_DAMAGED = ((11, "malformed"), (26, "file is not a database"))
_CANNOT_OPEN = (14, "unable to open database file")


def store_error(url: URL, error: Exception) -> JobStoreError:
    """The error of a call to the store, from what SQLAlchemy or the content raised.

    Parameters
    ----------
    url : URL
        The store.
    error : Exception
        An error of SQLAlchemy, or of reading a row.
    """
    shown = display_name(url)
    if not isinstance(error, SQLAlchemyError) or any(
        _has_result_code(error, one) for one in _DAMAGED
    ):
        return damaged_store_error(url, first_line(error))
    if _has_result_code(error, _FULL) or _has_result_code(error, _INPUT_OUTPUT):
        wrong = (
            f"nothing can be written ({first_line(error)}): make room on its disk; "
            "what waits for it goes on then"
        )
        return JobStoreError(shown, wrong, passing=True)
    wrong = f"it cannot be used now ({first_line(error)})"
    if _has_result_code(error, _CANNOT_OPEN):
        wrong += ": check that its folder is there, is yours and has room"
    return JobStoreError(shown, wrong, passing=True)


def is_file_error(error: Exception) -> bool:
    """Whether the file of a store is damaged, or its disk full; not, for example, a wrong URL."""
    if isinstance(error, UnicodeDecodeError):  # SQLite's own words hold bytes of the file
        return True
    return isinstance(error, SQLAlchemyError) and any(
        _has_result_code(error, one) for one in (*_DAMAGED, _FULL, _INPUT_OUTPUT)
    )


def damaged_store_error(url: URL, wrong: str) -> JobStoreError:
    """The error of a store whose content cannot be read."""
    shown = display_name(url)
    if url.get_backend_name() != "sqlite":
        return JobStoreError(shown, f"its content cannot be read ({wrong})", passing=False)
    advice = (
        f"move it away together with {shown}-wal and {shown}-shm, or recover it with: "
        f"sqlite3 {shown} .recover | sqlite3 recovered.db. Logs and results of jobs stay in their "
        "folders; steps that run go on"
    )
    return JobStoreError(shown, f"the file is damaged ({wrong}); {advice}", passing=False)


def display_name(url: URL) -> str:
    """The file of a store, or its URL without the password."""
    if url.get_backend_name() == "sqlite" and url.database:
        return url.database
    return url.render_as_string(hide_password=True)


def first_line(error: BaseException) -> str:
    """What the database or the driver said, without SQLAlchemy's words, on one line."""
    said = getattr(error, "orig", None) or error
    return (f"{said}".splitlines() or [type(said).__name__])[0][:200]


def _has_result_code(error: Exception, wanted: tuple[int, str]) -> bool:
    """Whether SQLite gave a result code."""
    said = getattr(error, "orig", None)
    code = getattr(said, "sqlite_errorcode", None)
    # The lowest byte is the code, the others say more of it.
    return wanted[1] in str(said) if code is None else code & 0xFF == wanted[0]
