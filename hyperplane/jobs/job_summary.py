"""Summary of several jobs, in the documented wording of the notebook API."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hyperplane.core.errors import Fault, JobError, RequestError, check
from hyperplane.core.units import is_iterable
from hyperplane.jobs.job_control import ensure_supervisor, to_job_id
from hyperplane.jobs.job_names import find_job
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

if TYPE_CHECKING:
    from hyperplane.jobs.store.job_store import JobStore


def format_summary(jobs: Sequence[Job]) -> str:
    """Format the documented summary of several jobs."""
    count = Counter(job.status for job in jobs)
    total = len(jobs)
    processed = sum(job.processed for job in jobs)
    waiting = count[PENDING] + count[SCHEDULED]
    ends = " | ".join(
        f"{count[status]} {status}" for status in (DONE, TIMED_OUT, CANCELLED, FAILED)
    )
    progress = 100.0 * processed / total if total else 100.0
    dashboards = "\n".join(f"{job.id} {job.status} {job.dashboard or None}" for job in jobs)
    return (
        f"#### Jobs summary\n{count[IN_PROGRESS]} / {total} in progress\n\n"
        f"{waiting} / {total} pending\n\n{processed} / {total} processed\n\n{ends}\n\n"
        f"Progress: {progress:.1f}%\n\n#### Dask dashboards\n{dashboards}"
    )


def summarize_jobs(ids: Any, store: JobStore | None = None) -> tuple[str, bool]:
    """Return the summary of jobs, and whether all of them have ended.

    Parameters
    ----------
    ids : str, Submitted, JobHandle or iterable of them
        The jobs; unique prefixes of ids, names and ``"latest"`` are accepted.
    store : JobStore, optional
        Store of the jobs; the configured one by default.

    Raises
    ------
    RequestError
        With every id that no job has, and every prefix or name of several.
    """
    store = store or open_store()
    job_ids = _to_ids(ids)
    jobs_by_id = store.get_many(job_ids)
    faults: list[Fault] = []
    for job_id in job_ids:
        if job_id not in jobs_by_id:
            try:
                jobs_by_id[job_id] = find_job(store, job_id)  # by a prefix of its id, or a name
            except JobError:
                allowed = "an id, a unique prefix, or a name; 'hyperplane job list' shows them"
                faults.append(Fault("ids", repr(job_id), allowed))
    check(faults)
    ensure_supervisor(store)
    jobs = list(
        {jobs_by_id[job_id].id: jobs_by_id[job_id] for job_id in job_ids}.values()
    )  # each job once
    return format_summary(jobs), all(job.processed for job in jobs)


async def watch_jobs(ids: Any, interval: float) -> str:
    """Return the summary once all jobs have ended; show it on each change until then."""
    store, job_ids, shown = open_store(), _to_ids(ids), ""
    while True:
        text, ended = await asyncio.to_thread(summarize_jobs, job_ids, store)
        if shown and (ended or text != shown):
            _clear_output(wait=not ended)
        if ended:
            return text
        if text != shown:
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()
            shown = text
        await asyncio.sleep(interval)


def _to_ids(ids: Any) -> list[str]:
    """Return the ids of jobs; text, or the result of one submission, is one job."""
    is_single = isinstance(ids, str) or hasattr(ids, "id")
    if not is_single and not is_iterable(ids):
        allowed = "one job id or a list of job ids"
        raise RequestError([Fault("ids", type(ids).__name__, allowed)])
    return [to_job_id(job) for job in ([ids] if is_single else ids)]


def _clear_output(*, wait: bool) -> None:
    """In a notebook, clear the previous output of the cell."""
    if "ipykernel" in sys.modules:
        from IPython.display import clear_output

        clear_output(wait=wait)
