"""The summary of several jobs, in the documented words."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from hyperplane.errors import Fault, RequestError
from hyperplane.jobs.home import the_store
from hyperplane.jobs.states import (
    CANCELLED,
    DONE,
    FAILED,
    IN_PROGRESS,
    PENDING,
    SCHEDULED,
    TIMED_OUT,
    Job,
)  # fmt: skip
from hyperplane.jobs.submitting import look_after

if TYPE_CHECKING:
    from hyperplane.jobs.store import JobStore


def summary(jobs: Sequence[Job]) -> str:
    """The documented text on several jobs."""
    count = {status: sum(job.status == status for job in jobs) for status in _STATUSES}
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


_STATUSES = (SCHEDULED, PENDING, IN_PROGRESS, DONE, TIMED_OUT, CANCELLED, FAILED)


def check_jobs(ids: Iterable[Any], store: JobStore | None = None) -> tuple[str, bool]:
    """The summary of jobs, and whether all of them have ended.

    Raises
    ------
    RequestError
        With every id that no job has.
    """
    store = store or the_store()
    asked = [str(one[0]) if isinstance(one, tuple) else str(one) for one in ids]
    found = store.many(asked)
    missing = [one for one in asked if one not in found]
    if missing:
        allowed = "the id of a job; hyperplane job list shows them"
        raise RequestError([Fault("ids", repr(one), allowed) for one in missing])
    look_after(store)
    jobs = [found[one] for one in asked]
    return summary(jobs), all(job.processed for job in jobs)


async def watch_jobs(ids: Iterable[Any], interval: float) -> str:
    """The summary once all jobs have ended; until then it is shown every so many seconds."""
    store, asked, shown = the_store(), list(ids), False
    while True:
        text, ended = await asyncio.to_thread(check_jobs, asked, store)
        if shown:
            _clear(wait=not ended)
        if ended:
            return text
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
        shown = True
        await asyncio.sleep(interval)


def _clear(*, wait: bool) -> None:
    """Take back what was shown before, in a notebook."""
    if "ipykernel" in sys.modules:
        from IPython.display import clear_output

        clear_output(wait=wait)
