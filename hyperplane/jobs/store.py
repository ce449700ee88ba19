"""The state of all jobs, in one SQLite file or any database of SQLAlchemy."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from sqlite3 import OperationalError
from typing import Any

import sqlalchemy as sql
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from hyperplane.errors import Fault, JobError, RequestError
from hyperplane.jobs.mounts import is_on_network
from hyperplane.jobs.states import OPEN, PENDING, TIMED_OUT, Attempt, Job, timeout_reason
from hyperplane.jobs.store_errors import first_line, is_file_error, store_error

_TABLES = sql.MetaData()
_JOBS = sql.Table(
    "hyperplane_jobs",
    _TABLES,
    sql.Column("id", sql.String(64), primary_key=True),
    sql.Column("run_id", sql.String(64), nullable=False),
    sql.Column("name", sql.String(256), nullable=False, index=True),
    sql.Column("job_type", sql.String(64), nullable=False),
    sql.Column("status", sql.String(16), nullable=False, index=True),
    sql.Column("reason", sql.Text, nullable=False),
    *(sql.Column(name, sql.Double, nullable=False) for name in ("submitted", "started", "ended")),
    *(sql.Column(name, sql.Double, nullable=False) for name in ("timeout", "active_timeout")),
    *(sql.Column(name, sql.Integer, nullable=False) for name in ("max_retries", "tries")),
    sql.Column("definition", sql.Text, nullable=False),
    sql.Column("parameters", sql.Text, nullable=False),
    sql.Column("machine", sql.String(256), nullable=False, index=True),
    sql.Column("python", sql.Text, nullable=False),
    sql.Column("runner", sql.String(64), nullable=False),
    sql.Column("folder", sql.Text, nullable=False),
    sql.Column("dashboard", sql.Text, nullable=False),
    sql.Column("output", sql.Text),
    sql.Column("schedule", sql.String(256), nullable=False),
    sql.Column("cancelled", sql.Boolean, nullable=False),
)
_ATTEMPTS = sql.Table(
    "hyperplane_attempts",
    _TABLES,
    sql.Column("job_id", sql.ForeignKey("hyperplane_jobs.id"), primary_key=True),
    sql.Column("step", sql.String(256), primary_key=True),
    sql.Column("chunk", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("number", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("status", sql.String(16), nullable=False),
    *(sql.Column(name, sql.Double, nullable=False) for name in ("started", "ended")),
    sql.Column("exit_code", sql.Integer),
    sql.Column("reason", sql.Text, nullable=False),
    sql.Column("fault", sql.String(16), nullable=False),
    sql.Column("log", sql.Text, nullable=False),
)


class JobStore:
    """All jobs that somebody has submitted, here or, in a database of a team, elsewhere.

    Parameters
    ----------
    url : str
        URL of SQLAlchemy.

    Raises
    ------
    RequestError
        When there is no such database, or no driver for it.
    JobStoreError
        When the database is damaged, or its disk is full. So do all methods.
    """

    def __init__(self, url: str) -> None:
        try:
            parsed = make_url(url)
            self._engine = _create_engine(parsed)
            _make_tables(self._engine)
            _check_tables(self._engine)
        except (SQLAlchemyError, ImportError, OSError, ValueError) as error:
            if is_file_error(error):
                raise store_error(make_url(url), error) from error
            allowed = f"a database of SQLAlchemy that can be opened ({first_line(error)})"
            shown = repr(_hide_password(url))
            raise RequestError([Fault("hyperplane.jobs.store", shown, allowed)]) from error

    def add(self, job: Job) -> None:
        """Keep a new job."""
        values = {**asdict(job), "parameters": json.dumps(dict(job.parameters))}
        with self._connect(write=True) as connection:
            connection.execute(sql.insert(_JOBS).values(values))

    def get(self, job_id: str) -> Job:
        """The job of an id, or of the beginning of one that only one job has.

        Raises
        ------
        JobError
            When there is none, or several begin so.
        """
        like = _JOBS.c.id.startswith(job_id, autoescape=True)
        found = self._jobs(sql.select(_JOBS).where(like).limit(2)) if job_id else []
        exact = [job for job in found if job.id == job_id]
        if len(exact or found) != 1:
            wrong = "several begin so; write more of it" if found else "there is no such job"
            raise JobError(job_id, f"{wrong}. hyperplane job list shows them")
        return (exact or found)[0]

    def find(
        self,
        *,
        statuses: Collection[str] | None = None,
        machine: str | None = None,
        name: str | None = None,
        schedule: str | None = None,
        limit: int | None = None,
    ) -> list[Job]:
        """Jobs, those submitted last first."""
        query = sql.select(_JOBS).order_by(_JOBS.c.submitted.desc(), _JOBS.c.id)
        if statuses is not None:
            query = query.where(_JOBS.c.status.in_(statuses))
        wanted = {"machine": machine, "name": name, "schedule": schedule}
        for column, value in wanted.items():
            if value is not None:
                query = query.where(_JOBS.c[column] == value)
        return self._jobs(query if limit is None else query.limit(limit))

    def get_many(self, ids: Sequence[str]) -> dict[str, Job]:
        """Jobs by their ids, as far as there are any."""
        return {job.id: job for job in self._jobs(sql.select(_JOBS).where(_JOBS.c.id.in_(ids)))}

    def update(
        self, job_id: str, *, if_status: Collection[str] | None = None, **values: Any
    ) -> bool:
        """Change fields of a job, if its status is among some; whether it was."""
        query = sql.update(_JOBS).where(_JOBS.c.id == job_id).values(**values)
        if if_status is not None:
            query = query.where(_JOBS.c.status.in_(if_status))
        with self._connect(write=True) as connection:
            return bool(connection.execute(query).rowcount)

    def open_ids(self, machine: str) -> list[str]:
        """The ids of a machine's jobs that want something done, the oldest first."""
        query = sql.select(_JOBS.c.id).where(_JOBS.c.status.in_(OPEN), _JOBS.c.machine == machine)
        with self._connect() as connection:
            return list(connection.execute(query.order_by(_JOBS.c.submitted)).scalars())

    def expire_pending(self, machine: str) -> None:
        """End pending jobs whose time from their submission is over."""
        late = sql.and_(_JOBS.c.timeout >= 0, _JOBS.c.submitted + _JOBS.c.timeout < time.time())
        where = (_JOBS.c.status == PENDING, _JOBS.c.machine == machine, late)
        with self._connect() as connection:
            found = connection.execute(sql.select(_JOBS.c.id, _JOBS.c.timeout).where(*where)).all()
        for job_id, timeout in found:
            reason = f"its turn did not come: {timeout_reason(timeout)}"
            ended = {"status": TIMED_OUT, "reason": reason, "ended": time.time()}
            self.update(job_id, if_status=[PENDING], **ended)

    def is_rerun(self, job: Job) -> bool:
        """Whether the last other job of the same steps had the same parameters."""
        same = (_JOBS.c.definition == job.definition, _JOBS.c.machine == job.machine)
        others = sql.select(_JOBS).where(*same, _JOBS.c.id != job.id, _JOBS.c.started > 0)
        last = self._jobs(others.order_by(_JOBS.c.submitted.desc()).limit(1))
        return bool(last) and last[0].parameters == job.parameters

    def cancel_requests(self, statuses: Collection[str]) -> list[str]:
        """The ids of jobs whose end somebody has asked for."""
        query = sql.select(_JOBS.c.id).where(_JOBS.c.cancelled, _JOBS.c.status.in_(statuses))
        with self._connect() as connection:
            return list(connection.execute(query).scalars())

    def save_attempt(self, attempt: Attempt) -> None:
        """Keep an attempt, new or changed."""
        values = asdict(attempt)
        key = [column == values[column.name] for column in _ATTEMPTS.primary_key.columns]
        with self._connect(write=True) as connection:
            changed = connection.execute(sql.update(_ATTEMPTS).where(*key).values(values))
            if not changed.rowcount:
                connection.execute(sql.insert(_ATTEMPTS).values(values))

    def attempts(self, job_id: str) -> list[Attempt]:
        """All attempts at the steps of a job, in the order in which they began."""
        columns = _ATTEMPTS.c
        query = sql.select(_ATTEMPTS).where(columns.job_id == job_id)
        query = query.order_by(columns.started, columns.step, columns.chunk, columns.number)
        with self._connect() as connection:
            rows = connection.execute(query).mappings().all()
            return [Attempt(**row) for row in rows]

    def close(self) -> None:
        """Let go of the database; whatever comes next opens it again."""
        self._engine.dispose()

    def _jobs(self, query: Any) -> list[Job]:
        with self._connect() as connection:
            rows = connection.execute(query).mappings().all()
            return [Job(**{**row, "parameters": json.loads(row["parameters"])}) for row in rows]

    @contextmanager
    def _connect(self, *, write: bool = False) -> Iterator[sql.Connection]:
        """A connection, in a transaction that is committed at the end if something is written."""
        try:
            with self._engine.begin() if write else self._engine.connect() as connection:
                yield connection
        except UnicodeEncodeError as error:  # of an argument; what is kept can be written
            asked = ascii(error.object)[:80]
            raise RequestError([Fault("text", asked, "text that UTF-8 can hold")]) from error
        except (SQLAlchemyError, ValueError, TypeError) as error:
            raise store_error(self._engine.url, error) from error


def _make_tables(engine: sql.Engine) -> None:
    for look in range(3):
        try:
            _TABLES.create_all(engine)
            return
        except DBAPIError:  # somebody makes them at this moment
            if look == 2:
                raise
            time.sleep(0.2)


def _check_tables(engine: sql.Engine) -> None:
    for table in (_JOBS, _ATTEMPTS):
        there = {column["name"] for column in sql.inspect(engine).get_columns(table.name)}
        if not set(table.columns.keys()) <= there:
            advice = "move it away, or name another one with hyperplane.jobs.store"
            raise OSError(f"another version of hyperplane has made it; {advice}")


def _create_engine(url: URL) -> sql.Engine:
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
    """Make a file that only its owner reads, for parameters are in it."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(file, os.O_CREAT | os.O_EXCL, 0o600))


def _configure_sqlite(connection: Any, _: object, *, mode: str) -> None:
    # WAL has readers and a writer at once, but needs memory that all of them share, which no other
    # machine sees. A commit survives the death of the process.
    try:
        connection.execute(f"PRAGMA journal_mode={mode}")
    except OperationalError:
        if mode == "WAL":
            raise  # away from WAL a file changes only while no other process has it open
    for setting in (f"synchronous={'NORMAL' if mode == 'WAL' else 'FULL'}", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {setting}")


def _hide_password(url: str) -> str:
    """A URL without its password."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return "a URL not shown here"
