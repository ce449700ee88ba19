"""What jobs say of themselves: one value, for whoever comes after."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hyperplane.errors import Fault, JobError, check
from hyperplane.jobs.home import open_store
from hyperplane.jobs.submitting import Submitted, to_job_id

#: Bytes of the end of a log that are read first.
_BLOCK_BYTES = 1 << 16


def current_job_id() -> str:
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


def set_output(value: str, job_id: str | Submitted | None = None) -> None:
    """Set the output of a job; of the one that this process is a step of, by default.

    Raises
    ------
    RequestError
        When it is no text.
    JobError
        When there is no such job.
    """
    given: Any = value
    if not isinstance(given, str):
        advice = "json.dumps(value) makes text of it"
        check([Fault("output of a job", ascii(given)[:80], "text", advice)])
    store = open_store()
    store.update(store.get(_resolve_id(job_id)).id, output=value)


def get_output(job_id: str | Submitted | None = None) -> str | None:
    """The output of a job; None when no step has set it."""
    return open_store().get(_resolve_id(job_id)).output


def previous_runs(job_id: str | Submitted | None = None, limit: int = 100) -> list[dict[str, Any]]:
    """Earlier runs of a job, the last first: those of its schedule, or else of its name."""
    store = open_store()
    now = store.get(_resolve_id(job_id))
    of: dict[str, str] = {"schedule": now.schedule} if now.schedule else {"name": now.name}
    asked = limit + 1
    while True:  # more of them as long as later runs take the places of earlier ones
        found = store.find(**of, limit=asked)
        earlier = [job for job in found if job.id != now.id and job.submitted <= now.submitted]
        if len(earlier) >= limit or len(found) < asked:
            return [job.as_dict() for job in earlier[:limit]]
        asked *= 2


def _resolve_id(job_id: str | Submitted | None) -> str:
    return current_job_id() if job_id is None else to_job_id(job_id)


def read_last_lines(log: Path, lines: int | None = None) -> str:
    """The end of a log, of which no more is read than that takes.

    Parameters
    ----------
    log : Path
        The log.
    lines : int, optional
        How many; all by default.

    Raises
    ------
    OSError
        When it cannot be read.
    """
    with log.open("rb") as opened:
        if lines is None:
            return opened.read().decode(errors="replace")
        size, block = opened.seek(0, os.SEEK_END), _BLOCK_BYTES
        while True:
            opened.seek(max(0, size - block))
            found = opened.read(min(block, size)).splitlines()
            # One more, for the first may have lost its beginning.
            if len(found) > lines or block >= size:
                last = found[max(0, len(found) - lines) :]
                return "\n".join(line.decode(errors="replace") for line in last)
            block *= 2
