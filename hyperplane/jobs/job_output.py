"""Outputs of jobs: one text value per job."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from hyperplane.core.artifact_reports import OUTPUT, report_artifact
from hyperplane.core.errors import Fault, JobError, check
from hyperplane.jobs.job_control import Submitted, to_job_id
from hyperplane.jobs.job_names import find_job
from hyperplane.jobs.store.jobs_home import open_store


def current_job_id() -> str:
    """Return the id of the job that this process is a step of.

    Raises
    ------
    JobError
        If this process is not a step of a job.
    """
    job_id = os.environ.get("HYPERPLANE_JOB_ID", "__local_test")
    if job_id == "__local_test":
        raise JobError("(none)", "this process is not a step of a job; pass a job id")
    return job_id


def set_output(value: str, job_id: str | Submitted | None = None) -> None:
    """Set the output of a job; by default of the job of this process.

    Raises
    ------
    RequestError
        If the value is not text.
    JobError
        If there is no such job.
    """
    argument: Any = value
    if not isinstance(argument, str):
        advice = "convert the value with json.dumps(value)"
        check([Fault("output of a job", ascii(argument)[:80], "text", advice)])
    store = open_store()
    found = find_job(store, _resolve_id(job_id)).id
    store.update(found, output=value)
    if found == os.environ.get("HYPERPLANE_JOB_ID"):
        content = value.encode(errors="surrogatepass")
        digest = hashlib.sha256(content).hexdigest()
        report_artifact(OUTPUT, size=len(content), digest=digest)


def get_output(job_id: str | Submitted | None = None) -> str | None:
    """Return the output of a job; None if no step has set it."""
    return find_job(open_store(), _resolve_id(job_id)).output


def previous_runs(job_id: str | Submitted | None = None, limit: int = 100) -> list[dict[str, Any]]:
    """Return earlier jobs of the same schedule, else of the same name, most recent first."""
    store = open_store()
    current = find_job(store, _resolve_id(job_id))
    criteria: dict[str, Any] = (
        {"schedule": current.schedule} if current.schedule else {"name": current.name}
    )
    fetch_limit = limit + 1
    while True:  # the limit of the query also counts later jobs
        runs = store.find(**criteria, limit=fetch_limit)
        earlier = [
            job for job in runs if job.id != current.id and job.requested <= current.requested
        ]
        if len(earlier) >= limit or len(runs) < fetch_limit:
            return [job.as_dict() for job in earlier[:limit]]
        fetch_limit *= 2


def _resolve_id(job_id: str | Submitted | None) -> str:
    return current_job_id() if job_id is None else to_job_id(job_id)
