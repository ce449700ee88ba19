"""What jobs say of themselves: one value, for whoever comes after."""

from __future__ import annotations

import os
from typing import Any

from hyperplane.errors import JobError
from hyperplane.jobs.home import the_store
from hyperplane.jobs.states import Job


def current_job() -> str:
    """The id of the job whose step this process is.

    Raises
    ------
    JobError
        When it is none.
    """
    found = os.environ.get("HYPERPLANE_JOB_ID", "__local_test")
    if found == "__local_test":
        raise JobError("(none)", "this is a session; only a step of a job has a job")
    return found


def set_output(value: str, job_id: str | None = None) -> None:
    """Set the output of a job; of the one that this process is a step of, by default."""
    if not isinstance(value, str):
        raise TypeError(f"the output of a job is text, not {type(value).__name__}; use json.dumps")
    the_store().update(job_id or current_job(), output=value)


def get_output(job_id: str | None = None) -> str | None:
    """The output of a job; None when no step has set it."""
    return the_store().get(job_id or current_job()).output


def previous_runs(job_id: str | None = None, limit: int = 100) -> list[dict[str, Any]]:
    """Earlier runs of a job, the last first: those of its schedule, or else of its name."""
    store = the_store()
    now = store.get(job_id or current_job())
    of: dict[str, str] = {"schedule": now.schedule} if now.schedule else {"name": now.name}
    found: list[Job] = store.find(**of, limit=limit + 1)
    earlier = [job for job in found if job.id != now.id and job.submitted <= now.submitted]
    return [job.as_dict() for job in earlier[:limit]]
