"""List the submitted jobs."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Iterable
from typing import Any

from hyperplane.core.argument_checks import describe_value
from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import check_call
from hyperplane.core.text_tables import format_columns
from hyperplane.core.units import format_local_time
from hyperplane.history.selection import TIME_FORM, parse_time
from hyperplane.jobs.definition.message_formatting import suggest_names
from hyperplane.jobs.job_control import ensure_supervisor
from hyperplane.jobs.job_html import render_jobs
from hyperplane.jobs.job_progress import describe_duration, to_plain_line
from hyperplane.jobs.store.job_records import (
    CANCELLED,
    DONE,
    FAILED,
    IN_PROGRESS,
    PENDING,
    SCHEDULED,
    TIMED_OUT,
    Job,
)  # fmt: skip
from hyperplane.jobs.store.jobs_home import open_store

#: Largest integer that all databases accept.
_MAX_LIMIT = 2**31 - 1
STATUSES = (SCHEDULED, PENDING, IN_PROGRESS, DONE, FAILED, TIMED_OUT, CANCELLED)


#: Reason of a job with a failed step.
_FAILED_STEP = re.compile(
    r"step (?P<quote>['\"])(?P<step>.*?)(?P=quote)(?P<chunk> \[\d+\])? failed: "
    r"(?:exit code \d+: )?(?P<why>.+?)(?:; not retried, because it would fail again)?"
)
#: Columns of a printed list, and characters of a reason that it shows.
_TITLES = ("id", "run", "name", "status", "submitted", "took", "reason")
_REASON_LENGTH = 60


class JobList(list[Job]):
    """Jobs as a list, which prints as a table."""

    def __str__(self) -> str:
        return format_columns(_TITLES, map(_list_cells, self)) if self else "no jobs"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return render_jobs(self)


@check_call
def list_jobs(
    status: str | Iterable[str] | None = None,
    *,
    name: str | None = None,
    schedule: str | None = None,
    pipeline: str | None = None,
    since: str | dt.datetime | None = None,
    text: str | None = None,
    limit: int | None = 20,
) -> list[Job]:
    """List submitted jobs, most recent first.

    Parameters
    ----------
    status : str or iterable of str, optional
        Only jobs with this status, such as ``"in progress"`` or ``"in-progress"``, or with one of
        several.
    name : str, optional
        Only jobs of this name.
    schedule : str, optional
        Only runs of this schedule.
    pipeline : str, optional
        Only runs of the pipeline with this name.
    since : str or datetime.datetime, optional
        Only jobs submitted or resumed since a time such as ``"2026-11-27"`` or
        ``"2026-11-27T16:00"``, or within a duration such as ``"7 days"``.
    text : str, optional
        Only jobs with this text in their id, name, pipeline, schedule, reason, machine, or in a
        name or value of their parameters; upper and lower case are the same.
    limit : int, optional
        Maximum number of jobs; None for all.

    Returns
    -------
    list of Job
        The jobs in their current state, which print as a table. A store shared by a team also has
        jobs of other users and machines.

    Raises
    ------
    RequestError
        If a status is unknown, the time cannot be read, or the limit is invalid.

    Examples
    --------
    >>> from hyperplane.jobs import Pipeline, Step, list_jobs, submit
    >>> step = Step(name="hello", kind="command", argv=("true",))
    >>> _ = submit(Pipeline.from_steps("p", [step]), name="first.of.list").wait()
    >>> [(job.name, job.status) for job in list_jobs("done", name="first.of.list", limit=1)]
    [('first.of.list', 'done')]
    """
    try:
        requested: list[Any] = (
            [status] if isinstance(status, str) else list(() if status is None else status)
        )
    except TypeError:
        requested = [status]  # reported below as an unknown status
    statuses = [str(value).replace("-", " ").replace("_", " ") for value in requested]
    faults = [
        Fault(
            "status",
            repr(given)[:80],
            f"one of {', '.join(STATUSES)}",
            suggest_names(value, STATUSES),
        )
        for given, value in zip(requested, statuses, strict=True)
        if value not in STATUSES
    ]
    if limit is not None and (
        isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _MAX_LIMIT
    ):
        faults.append(
            Fault(
                "limit", repr(limit), f"a whole number from 1 to {_MAX_LIMIT}, or None for all jobs"
            )
        )
    faults += [
        Fault(field, repr(value)[:80], "text")
        for field, value in (
            ("name", name), ("schedule", schedule), ("pipeline", pipeline), ("text", text)
        )
        if value is not None and not isinstance(value, str)
    ]  # fmt: skip
    earliest = None
    try:
        earliest = None if since is None else parse_time(since)
    except ValueError:
        faults.append(Fault("since", describe_value(since), TIME_FORM))
    check(faults)
    store = open_store()
    ensure_supervisor(store)
    jobs = store.find(
        statuses=statuses or None, name=name, schedule=schedule, pipeline=pipeline, since=earliest,
        limit=limit if text is None else None,
    )  # fmt: skip
    if text is None:
        return JobList(jobs)
    # Not in the database: SQLite ignores case for ASCII only.
    wanted = text.casefold()
    return JobList([job for job in jobs if _contains(job, wanted)][:limit])


def _list_cells(job: Job) -> tuple[str, ...]:
    """Return the cells of a job in a printed list."""
    took = describe_duration(job, time.time())
    submitted = format_local_time(job.submitted, "%Y-%m-%d %H:%M")
    reason = shorten_reason(job)
    if len(reason) > _REASON_LENGTH:
        reason = f"{reason[: _REASON_LENGTH - 3]}..."
    names = map(to_plain_line, (job.run_name, job.name))
    return (job.id[:8], *names, job.status, submitted, took, reason)


def shorten_reason(job: Job) -> str:
    """Return the reason of a job for a list, whose narrow column shows only its beginning.

    It begins with the error: words that all reasons have are left out, and the name of a step that
    is that of the pipeline, as in the job of a function.
    """
    reason = to_plain_line(job.reason)
    found = _FAILED_STEP.fullmatch(reason)
    if found is None:
        return reason
    step = "" if found["step"] == job.pipeline_name and not found["chunk"] else found["step"]
    place = f"{step}{found['chunk'] or ''}"
    return f"{place}: {found['why']}" if place else found["why"]


def _contains(job: Job, text: str) -> bool:
    texts = (
        job.id, job.name, job.run_name, job.pipeline_name, job.schedule, job.reason, job.machine,
        *job.parameters.keys(), *job.parameters.values(),
    )  # fmt: skip
    return any(text in each.casefold() for each in texts)
