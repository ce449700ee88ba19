"""The database of the job store: its connection, its tables, and its private file."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from sqlite3 import OperationalError
from typing import Any

import sqlalchemy as sql
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError

from hyperplane.jobs.store.tables import TABLES
from hyperplane.platforms.local.file_systems import is_on_network


def create_tables(engine: sql.Engine) -> None:
    """Create the tables that are missing."""
    for tries in range(3):
        try:
            TABLES.create_all(engine)
            return
        except DBAPIError as error:  # another process may be creating them
            # SQLite's errors for a damaged file are of this class; others are of its subclasses.
            if tries == 2 or type(error) is DatabaseError:
                raise
            time.sleep(0.2)


def check_tables(engine: sql.Engine) -> None:
    """Raise OSError if a table lacks columns, as another version has created it."""
    for table in TABLES.sorted_tables:
        existing = {column["name"] for column in sql.inspect(engine).get_columns(table.name)}
        if not set(table.columns.keys()) <= existing:
            advice = "move it away, or set hyperplane.jobs.store to another one"
            raise OSError(f"created by another version of hyperplane; {advice}")


def create_engine(url: URL) -> sql.Engine:
    """Return the engine of a database; a file of SQLite is created for this user only."""
    if url.get_backend_name() != "sqlite":
        return sql.create_engine(url, pool_pre_ping=True)
    if url.database and url.database != ":memory:":
        _create_private_file(Path(url.database))
    engine = sql.create_engine(url, connect_args={"timeout": 60})
    shared = is_on_network(Path(url.database)) if url.database else False
    sql.event.listen(
        engine, "connect", partial(_configure_sqlite, mode="DELETE" if shared else "WAL")
    )
    return engine


def _create_private_file(file: Path) -> None:
    """Create a file that only its owner can read, because it contains parameters."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(file, os.O_CREAT | os.O_EXCL, 0o600))


def _configure_sqlite(connection: Any, _: object, *, mode: str) -> None:
    # WAL allows concurrent readers and a writer, but needs shared memory, which other machines do
    # not have. In both modes a commit survives the death of the process.
    try:
        connection.execute(f"PRAGMA journal_mode={mode}")
    except OperationalError:
        if mode == "WAL":
            raise
        # Leaving WAL fails while another process has the file open, which then stays in WAL mode.
    for setting in (f"synchronous={'NORMAL' if mode == 'WAL' else 'FULL'}", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {setting}")


def hide_password(url: str) -> str:
    """Return a URL without its password."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return "a URL not shown"
