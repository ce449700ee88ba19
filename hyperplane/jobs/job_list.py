"""List the submitted jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import check_call
from hyperplane.jobs.definition.message_formatting import suggest_names
from hyperplane.jobs.job_control import ensure_supervisor
from hyperplane.jobs.job_html import render_jobs
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


class JobList(list[Job]):
    """Jobs as a list, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        return render_jobs(self)


@check_call
def list_jobs(
    status: str | Iterable[str] | None = None,
    *,
    name: str | None = None,
    schedule: str | None = None,
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
    limit : int, optional
        Maximum number of jobs; None for all.

    Returns
    -------
    list of Job
        The jobs in their current state; a notebook shows them as a table. A store shared by a team
        also has jobs of other users and machines.

    Raises
    ------
    RequestError
        If a status is unknown or the limit is invalid.

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
        for field, value in (("name", name), ("schedule", schedule))
        if value is not None and not isinstance(value, str)
    ]
    check(faults)
    store = open_store()
    ensure_supervisor(store)
    jobs = store.find(statuses=statuses or None, name=name, schedule=schedule, limit=limit)
    return JobList(jobs)
