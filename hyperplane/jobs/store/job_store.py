"""Store of all jobs in an SQLite file, or another database supported by SQLAlchemy."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import sqlalchemy as sql
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from hyperplane.core.errors import Fault, JobError, RequestError
from hyperplane.history import RunRecord
from hyperplane.jobs.store.artifact_store import ArtifactStore
from hyperplane.jobs.store.database import check_tables, create_engine, create_tables, hide_password
from hyperplane.jobs.store.job_records import (
    OPEN,
    PENDING,
    PROCESSED,
    TIMED_OUT,
    Attempt,
    Job,
    timeout_reason,
)
from hyperplane.jobs.store.store_errors import first_line, is_file_error, store_error
from hyperplane.jobs.store.tables import (
    ARTIFACTS,
    ATTEMPTS,
    CLUSTERS,
    COUNTERS,
    EARLIER_RUNS,
    JOBS,
    NUMBERS,
    RESUMED,
    RUNS,
    STEPS,
)  # fmt: skip

_log = logging.getLogger(__name__)
#: Most records of each kind of one step of a pipeline that are kept, the newest.
_MOST_RUNS = 50


class JobStore(ArtifactStore):
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
            self._engine = create_engine(parsed)
            create_tables(self._engine)
            check_tables(self._engine)
        except (SQLAlchemyError, ImportError, OSError, ValueError) as error:
            if is_file_error(error):
                raise store_error(make_url(url), error) from error
            allowed = f"the SQLAlchemy URL of a database that can be opened ({first_line(error)})"
            visible_url = repr(hide_password(url))
            raise RequestError([Fault("hyperplane.jobs.store", visible_url, allowed)]) from error

    def add(self, job: Job) -> None:
        """Add a new job, with the next run number of its pipeline."""
        values = {**asdict(job), "parameters": json.dumps(dict(job.parameters))}
        del values["number"], values["resumed"], values["earlier_seconds"]
        pipeline = job.pipeline_name
        with self._connect(write=True) as connection:
            connection.execute(sql.insert(JOBS).values(values))
            if pipeline:
                numbered = {"job_id": job.id, "pipeline": pipeline}
                number = _next_number(connection, pipeline)
                connection.execute(sql.insert(NUMBERS).values(number=number, **numbered))

    def get(self, job_id: str) -> Job:
        """Return the job with an id, or with a unique prefix of it.

        Raises
        ------
        JobError
            If there is none, or the prefix is ambiguous.
        """
        like = JOBS.c.id.startswith(job_id, autoescape=True)
        matches = self._jobs(_select_jobs().where(like).limit(2)) if job_id else []
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
        pipeline: str | None = None,
        number: int | None = None,
        any_name: str | None = None,
        id_prefix: str | None = None,
        since: float | None = None,
        limit: int | None = None,
    ) -> list[Job]:
        """Return matching jobs, most recently submitted or resumed first.

        ``any_name`` is the name of the job or of its pipeline.
        """
        query = _select_jobs().order_by(JOBS.c.submitted.desc(), JOBS.c.id)
        if statuses is not None:
            query = query.where(JOBS.c.status.in_(statuses))
        wanted = {"machine": machine, "name": name, "schedule": schedule}
        for column, value in wanted.items():
            if value is not None:
                query = query.where(JOBS.c[column] == value)
        if number is not None:
            query = query.where(NUMBERS.c.number == number)
        if pipeline is not None:
            query = query.where(_has_pipeline(pipeline))
        if any_name is not None:
            query = query.where(sql.or_(JOBS.c.name == any_name, _has_pipeline(any_name)))
        if since is not None:
            query = query.where(JOBS.c.submitted >= since)
        if id_prefix is not None:
            query = query.where(JOBS.c.id.startswith(id_prefix, autoescape=True))
        return self._jobs(query if limit is None else query.limit(limit))

    def count(self, statuses: Collection[str], *, ended_since: float | None = None) -> int:
        """Return how many jobs have one of the statuses now.

        With ``ended_since``, those that have ended count only if they have since that time.
        """
        query = sql.select(sql.func.count()).select_from(JOBS).where(JOBS.c.status.in_(statuses))
        if ended_since is not None:
            is_open = JOBS.c.status.notin_(PROCESSED)
            query = query.where(sql.or_(is_open, JOBS.c.ended >= ended_since))
        with self._connect() as connection:
            return int(connection.execute(query).scalar_one())

    def names(self, limit: int) -> list[str]:
        """Return the names of pipelines, and of the most recently submitted jobs."""
        pipelines = sql.select(COUNTERS.c.pipeline).limit(limit)
        jobs = sql.select(JOBS.c.name).order_by(JOBS.c.submitted.desc()).limit(limit)
        with self._connect() as connection:
            rows = [*connection.execute(pipelines).scalars(), *connection.execute(jobs).scalars()]
        return list(dict.fromkeys(rows))

    def get_many(self, ids: Sequence[str]) -> dict[str, Job]:
        """Return those of the jobs that exist, by id."""
        return {job.id: job for job in self._jobs(_select_jobs().where(JOBS.c.id.in_(ids)))}

    def update(
        self, job_id: str, *, if_status: Collection[str] | None = None, **values: Any
    ) -> bool:
        """Change fields of a job if it has one of the statuses; return whether it did."""
        query = sql.update(JOBS).where(JOBS.c.id == job_id).values(**values)
        if if_status is not None:
            query = query.where(JOBS.c.status.in_(if_status))
        with self._connect(write=True) as connection:
            return bool(connection.execute(query).rowcount)

    def reset(self, job: Job, **values: Any) -> bool:
        """Change fields of a job that has ended, to run it again now; return whether it had."""
        same = JOBS.c.id == job.id
        # This also locks the row, whose times may have changed since the job was read.
        lock = sql.update(JOBS).where(same, JOBS.c.status.in_(PROCESSED))
        last_run = sql.select(JOBS.c.started, JOBS.c.ended).where(same)
        known = sql.select(RESUMED.c.job_id).where(RESUMED.c.job_id == job.id)
        with self._connect(write=True) as connection:
            if not connection.execute(lock.values(cancelled=JOBS.c.cancelled)).rowcount:
                return False
            started, ended = connection.execute(last_run).one()
            if started and ended > started:
                _add_earlier_run(connection, job.id, ended - started)
            connection.execute(sql.update(JOBS).where(same).values(submitted=time.time(), **values))
            if connection.execute(known).first() is None:
                first = {"job_id": job.id, "first_submitted": job.submitted}
                connection.execute(sql.insert(RESUMED).values(first))
        return True

    def remove_ended(self, job_id: str, before_commit: Callable[[], object]) -> bool:
        """Remove a job with its records if it has ended; return whether it had.

        ``before_commit`` is called while no other process can resume the job.
        """
        same = JOBS.c.id == job_id
        # This also locks the row: a job that is resumed meanwhile is not removed.
        lock = sql.update(JOBS).where(same, JOBS.c.status.in_(PROCESSED))
        with self._connect(write=True) as connection:
            if not connection.execute(lock.values(cancelled=JOBS.c.cancelled)).rowcount:
                return False
            for table in (ATTEMPTS, ARTIFACTS):
                connection.execute(sql.delete(table).where(table.c.job_id == job_id))
            for table in (NUMBERS, RESUMED, EARLIER_RUNS):
                connection.execute(sql.delete(table).where(table.c.job_id == job_id))
            connection.execute(sql.delete(JOBS).where(same))
            before_commit()
        return True

    def open_ids(self, machine: str) -> list[str]:
        """Return the ids of a machine's jobs that must be run, oldest first."""
        query = sql.select(JOBS.c.id).where(JOBS.c.status.in_(OPEN), JOBS.c.machine == machine)
        with self._connect() as connection:
            return list(connection.execute(query.order_by(JOBS.c.submitted)).scalars())

    def expire_pending(self, machine: str) -> Iterator[Job]:
        """End pending jobs that exceeded their time from submission, and yield each once it has."""
        late = sql.and_(JOBS.c.timeout >= 0, JOBS.c.submitted + JOBS.c.timeout < time.time())
        where = (JOBS.c.status == PENDING, JOBS.c.machine == machine, late)
        for job in self._jobs(_select_jobs().where(*where)):
            reason = f"not started in time: {timeout_reason(job.timeout)}"
            ended: dict[str, Any] = {
                "status": TIMED_OUT, "reason": reason, "ended": time.time()
            }  # fmt: skip
            if self.update(job.id, if_status=[PENDING], **ended):
                yield replace(job, **ended)

    def is_rerun(self, job: Job) -> bool:
        """Whether the last other job of the same steps had the same parameters."""
        same = (JOBS.c.definition == job.definition, JOBS.c.machine == job.machine)
        others = _select_jobs().where(*same, JOBS.c.id != job.id, JOBS.c.started > 0)
        last = self._jobs(others.order_by(JOBS.c.submitted.desc()).limit(1))
        return bool(last) and last[0].parameters == job.parameters

    def cancel_requests(self, statuses: Collection[str]) -> list[str]:
        """Return the ids of jobs whose cancellation was requested."""
        query = sql.select(JOBS.c.id).where(JOBS.c.cancelled, JOBS.c.status.in_(statuses))
        with self._connect() as connection:
            return list(connection.execute(query).scalars())

    def save_attempt(self, attempt: Attempt) -> None:
        """Insert or update an attempt."""
        values = asdict(attempt)
        key = [column == values[column.name] for column in ATTEMPTS.primary_key.columns]
        with self._connect(write=True) as connection:
            changed = connection.execute(sql.update(ATTEMPTS).where(*key).values(values))
            if not changed.rowcount:
                connection.execute(sql.insert(ATTEMPTS).values(values))

    def attempts(self, job_id: str) -> list[Attempt]:
        """Return all attempts at the steps of a job, in order of their start."""
        columns = ATTEMPTS.c
        query = sql.select(ATTEMPTS).where(columns.job_id == job_id)
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
        table = RUNS[CLUSTERS if record.cluster else STEPS]
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
        job_id: str | None = None,
        kind: str | None = None,
        limit: int | None = None,
    ) -> list[RunRecord]:
        """Return records of a machine's runs, newest first; damaged ones are left out.

        ``kind`` is ``STEPS`` or ``CLUSTERS`` for records of only these.
        """
        rows: list[Any] = []
        with self._connect() as connection:
            for table in RUNS.values() if kind is None else (RUNS[kind],):
                columns = table.c
                query = sql.select(columns.started, columns.name, columns.document)
                query = query.where(columns.machine == machine)
                filters = (
                    (columns.pipeline, pipeline), (columns.step, step), (columns.job_id, job_id)
                )  # fmt: skip
                for column, value in filters:
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
            return [_read_job(row) for row in rows]

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


def _select_jobs() -> Any:
    """Return a query of the columns of jobs, and of the tables beside theirs, if any."""
    joined = JOBS.outerjoin(NUMBERS, NUMBERS.c.job_id == JOBS.c.id)
    joined = joined.outerjoin(RESUMED, RESUMED.c.job_id == JOBS.c.id)
    joined = joined.outerjoin(EARLIER_RUNS, EARLIER_RUNS.c.job_id == JOBS.c.id)
    earlier = sql.func.coalesce(EARLIER_RUNS.c.seconds, 0.0).label("earlier_seconds")
    others = (NUMBERS.c.number, RESUMED.c.first_submitted, earlier)
    return sql.select(JOBS, *others).select_from(joined)


def _read_job(row: Any) -> Job:
    values = {**row, "parameters": json.loads(row["parameters"])}
    first = values.pop("first_submitted")
    if first is not None:
        values["submitted"], values["resumed"] = first, values["submitted"]
    return Job(**values)


def _has_pipeline(name: str) -> Any:
    """Return the condition that a job is one of a pipeline; also for jobs without numbers."""
    # The definition of each version begins with the name. Not LIKE, which ignores case in SQLite.
    beginning = f'{{"name":{json.dumps(name, ensure_ascii=False)},'
    return sql.func.substr(JOBS.c.definition, 1, len(beginning)) == beginning


def _add_earlier_run(connection: sql.Connection, job_id: str, seconds: float) -> None:
    """Add the seconds of a run that has ended to those of a job, whose row is locked."""
    columns = EARLIER_RUNS.c
    add = sql.update(EARLIER_RUNS).where(columns.job_id == job_id)
    if not connection.execute(add.values(seconds=columns.seconds + seconds)).rowcount:
        connection.execute(sql.insert(EARLIER_RUNS).values(job_id=job_id, seconds=seconds))


def _next_number(connection: sql.Connection, pipeline: str) -> int:
    """Return the next run number of a pipeline; its counter is locked until the commit."""
    same = COUNTERS.c.pipeline == pipeline
    increase = sql.update(COUNTERS).where(same).values(last=COUNTERS.c.last + 1)
    if not connection.execute(increase).rowcount:
        try:
            with connection.begin_nested():
                connection.execute(sql.insert(COUNTERS).values(pipeline=pipeline, last=1))
        except IntegrityError:  # another process has inserted it since
            connection.execute(increase)
    return int(connection.execute(sql.select(COUNTERS.c.last).where(same)).scalar_one())
