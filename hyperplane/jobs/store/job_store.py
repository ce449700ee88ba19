"""Store of all jobs in an SQLite file, or another database supported by SQLAlchemy."""

from __future__ import annotations

import json
import logging
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
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, SQLAlchemyError

from hyperplane.core.errors import Fault, JobError, RequestError
from hyperplane.history import RunRecord
from hyperplane.jobs.store.job_records import OPEN, PENDING, TIMED_OUT, Attempt, Job, timeout_reason
from hyperplane.jobs.store.store_errors import first_line, is_file_error, store_error
from hyperplane.platforms.local.file_systems import is_on_network

_log = logging.getLogger(__name__)
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
#: Kinds of records: of runs of steps, and of the clusters that they start.
STEPS, CLUSTERS = "steps", "clusters"
#: A table for each kind: a step may start many clusters, whose records must not replace its own.
_RUNS = {
    kind: sql.Table(
        name,
        _TABLES,
        sql.Column("job_id", sql.String(64), primary_key=True),
        sql.Column("name", sql.String(256), primary_key=True),
        sql.Column("machine", sql.String(256), nullable=False, index=True),
        sql.Column("pipeline", sql.String(256), nullable=False, index=True),
        sql.Column("step", sql.String(256), nullable=False),
        sql.Column("started", sql.Double, nullable=False),
        sql.Column("document", sql.Text, nullable=False),
    )
    for kind, name in ((STEPS, "hyperplane_runs"), (CLUSTERS, "hyperplane_cluster_runs"))
}
#: Most records of each kind of one step of a pipeline that are kept, the newest.
_MOST_RUNS = 50


class JobStore:
    """Store of all jobs; a shared database also has those of other users and machines.

    Parameters
    ----------
    url : str
        SQLAlchemy URL.

    Raises
    ------
    RequestError
        If there is no such database, or no driver for it.
    JobStoreError
        If the database is damaged or its disk is full. All methods raise it, too, also while the
        database is unavailable.
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
            allowed = f"the SQLAlchemy URL of a database that can be opened ({first_line(error)})"
            visible_url = repr(_hide_password(url))
            raise RequestError([Fault("hyperplane.jobs.store", visible_url, allowed)]) from error

    def add(self, job: Job) -> None:
        """Add a new job."""
        values = {**asdict(job), "parameters": json.dumps(dict(job.parameters))}
        with self._connect(write=True) as connection:
            connection.execute(sql.insert(_JOBS).values(values))

    def get(self, job_id: str) -> Job:
        """Return the job with an id, or with a unique prefix of it.

        Raises
        ------
        JobError
            If there is none, or the prefix is ambiguous.
        """
        like = _JOBS.c.id.startswith(job_id, autoescape=True)
        matches = self._jobs(sql.select(_JOBS).where(like).limit(2)) if job_id else []
        exact = [job for job in matches if job.id == job_id]
        if len(exact or matches) != 1:
            message = (
                "several ids begin with this; use a longer prefix" if matches else "no such job"
            )
            raise JobError(job_id, f"{message}. 'hyperplane job list' shows the ids")
        return (exact or matches)[0]

    def find(
        self,
        *,
        statuses: Collection[str] | None = None,
        machine: str | None = None,
        name: str | None = None,
        schedule: str | None = None,
        limit: int | None = None,
    ) -> list[Job]:
        """Return matching jobs, most recently submitted first."""
        query = sql.select(_JOBS).order_by(_JOBS.c.submitted.desc(), _JOBS.c.id)
        if statuses is not None:
            query = query.where(_JOBS.c.status.in_(statuses))
        wanted = {"machine": machine, "name": name, "schedule": schedule}
        for column, value in wanted.items():
            if value is not None:
                query = query.where(_JOBS.c[column] == value)
        return self._jobs(query if limit is None else query.limit(limit))

    def get_many(self, ids: Sequence[str]) -> dict[str, Job]:
        """Return those of the jobs that exist, by id."""
        return {job.id: job for job in self._jobs(sql.select(_JOBS).where(_JOBS.c.id.in_(ids)))}

    def update(
        self, job_id: str, *, if_status: Collection[str] | None = None, **values: Any
    ) -> bool:
        """Change fields of a job if it has one of the statuses; return whether it did."""
        query = sql.update(_JOBS).where(_JOBS.c.id == job_id).values(**values)
        if if_status is not None:
            query = query.where(_JOBS.c.status.in_(if_status))
        with self._connect(write=True) as connection:
            return bool(connection.execute(query).rowcount)

    def open_ids(self, machine: str) -> list[str]:
        """Return the ids of a machine's jobs that must be run, oldest first."""
        query = sql.select(_JOBS.c.id).where(_JOBS.c.status.in_(OPEN), _JOBS.c.machine == machine)
        with self._connect() as connection:
            return list(connection.execute(query.order_by(_JOBS.c.submitted)).scalars())

    def expire_pending(self, machine: str) -> None:
        """End pending jobs that exceeded their time from submission."""
        late = sql.and_(_JOBS.c.timeout >= 0, _JOBS.c.submitted + _JOBS.c.timeout < time.time())
        where = (_JOBS.c.status == PENDING, _JOBS.c.machine == machine, late)
        with self._connect() as connection:
            expired = connection.execute(
                sql.select(_JOBS.c.id, _JOBS.c.timeout).where(*where)
            ).all()
        for job_id, timeout in expired:
            reason = f"not started in time: {timeout_reason(timeout)}"
            ended = {"status": TIMED_OUT, "reason": reason, "ended": time.time()}
            self.update(job_id, if_status=[PENDING], **ended)

    def is_rerun(self, job: Job) -> bool:
        """Whether the last other job of the same steps had the same parameters."""
        same = (_JOBS.c.definition == job.definition, _JOBS.c.machine == job.machine)
        others = sql.select(_JOBS).where(*same, _JOBS.c.id != job.id, _JOBS.c.started > 0)
        last = self._jobs(others.order_by(_JOBS.c.submitted.desc()).limit(1))
        return bool(last) and last[0].parameters == job.parameters

    def cancel_requests(self, statuses: Collection[str]) -> list[str]:
        """Return the ids of jobs whose cancellation was requested."""
        query = sql.select(_JOBS.c.id).where(_JOBS.c.cancelled, _JOBS.c.status.in_(statuses))
        with self._connect() as connection:
            return list(connection.execute(query).scalars())

    def save_attempt(self, attempt: Attempt) -> None:
        """Insert or update an attempt."""
        values = asdict(attempt)
        key = [column == values[column.name] for column in _ATTEMPTS.primary_key.columns]
        with self._connect(write=True) as connection:
            changed = connection.execute(sql.update(_ATTEMPTS).where(*key).values(values))
            if not changed.rowcount:
                connection.execute(sql.insert(_ATTEMPTS).values(values))

    def attempts(self, job_id: str) -> list[Attempt]:
        """Return all attempts at the steps of a job, in order of their start."""
        columns = _ATTEMPTS.c
        query = sql.select(_ATTEMPTS).where(columns.job_id == job_id)
        query = query.order_by(columns.started, columns.step, columns.chunk, columns.number)
        with self._connect() as connection:
            rows = connection.execute(query).mappings().all()
            return [Attempt(**row) for row in rows]

    def save_run(self, record: RunRecord, machine: str) -> None:
        """Insert or replace the record of a run of a step, and remove the oldest of the step."""
        key = {"job_id": record.job, "name": record.name}
        values = {
            **key, "machine": machine, "pipeline": record.pipeline, "step": record.step,
            "started": record.started, "document": record.to_json(),
        }  # fmt: skip
        table = _RUNS[CLUSTERS if record.cluster else STEPS]
        columns = table.c
        same_step = [columns[name] == values[name] for name in ("machine", "pipeline", "step")]
        newest = sql.select(columns.started).where(*same_step).order_by(columns.started.desc())
        with self._connect(write=True) as connection:
            connection.execute(
                sql.delete(table).where(*(columns[each] == key[each] for each in key))
            )
            connection.execute(sql.insert(table).values(values))
            oldest = connection.execute(newest.offset(_MOST_RUNS - 1).limit(1)).scalar()
            if oldest is not None:
                connection.execute(sql.delete(table).where(*same_step, columns.started < oldest))

    def runs(
        self,
        machine: str,
        *,
        pipeline: str | None = None,
        step: str | None = None,
        kind: str | None = None,
        limit: int | None = None,
    ) -> list[RunRecord]:
        """Return records of a machine's runs, newest first; damaged ones are left out.

        ``kind`` is ``STEPS`` or ``CLUSTERS`` for records of only these.
        """
        rows: list[Any] = []
        with self._connect() as connection:
            for table in _RUNS.values() if kind is None else (_RUNS[kind],):
                columns = table.c
                query = sql.select(columns.started, columns.name, columns.document)
                query = query.where(columns.machine == machine)
                for column, value in ((columns.pipeline, pipeline), (columns.step, step)):
                    if value is not None:
                        query = query.where(column == value)
                query = query.order_by(columns.started.desc(), columns.name).limit(limit)
                rows += connection.execute(query).all()
        records = []
        for _, name, document in sorted(rows, key=lambda row: (-row[0], row[1]))[:limit]:
            try:
                records.append(RunRecord.from_json(document))
            except RequestError as error:
                _log.warning("the record %s of the job store is left out: %s", name, error)
        return records

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        self._engine.dispose()

    def _jobs(self, query: Any) -> list[Job]:
        with self._connect() as connection:
            rows = connection.execute(query).mappings().all()
            return [Job(**{**row, "parameters": json.loads(row["parameters"])}) for row in rows]

    @contextmanager
    def _connect(self, *, write: bool = False) -> Iterator[sql.Connection]:
        """Yield a connection; if ``write``, in a transaction that is committed at the end."""
        try:
            with self._engine.begin() if write else self._engine.connect() as connection:
                yield connection
        except UnicodeEncodeError as error:  # an argument; stored text can be encoded
            asked = ascii(error.object)[:80]
            raise RequestError([Fault("text", asked, "text that UTF-8 can encode")]) from error
        except (SQLAlchemyError, ValueError, TypeError) as error:
            raise store_error(self._engine.url, error) from error


def _make_tables(engine: sql.Engine) -> None:
    for tries in range(3):
        try:
            _TABLES.create_all(engine)
            return
        except DBAPIError as error:  # another process may be creating them
            # SQLite's errors for a damaged file are of this class; others are of its subclasses.
            if tries == 2 or type(error) is DatabaseError:
                raise
            time.sleep(0.2)


def _check_tables(engine: sql.Engine) -> None:
    for table in (_JOBS, _ATTEMPTS, *_RUNS.values()):
        existing = {column["name"] for column in sql.inspect(engine).get_columns(table.name)}
        if not set(table.columns.keys()) <= existing:
            advice = "move it away, or set hyperplane.jobs.store to another one"
            raise OSError(f"created by another version of hyperplane; {advice}")


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


def _hide_password(url: str) -> str:
    """Return a URL without its password."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return "a URL not shown"
