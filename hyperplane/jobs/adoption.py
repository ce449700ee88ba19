"""Which jobs of a machine this running system may carry on: containers may share a host name."""

from __future__ import annotations

import contextlib
import fcntl
import fnmatch
import os
from collections.abc import Iterator
from pathlib import Path

from hyperplane.engines.running_system import running_system
from hyperplane.jobs import submission_snapshot, supervisor_client
from hyperplane.jobs.processes import is_locked
from hyperplane.jobs.states import Job

#: The file in a job's folder that is locked while it is submitted.
_SUBMISSION_LOCK = "submission.lock"


def can_adopt(job: Job) -> bool:
    """Whether a supervisor of this running system may carry a job on.

    Parameters
    ----------
    job : Job
        A job of this machine's name that has not ended.

    Returns
    -------
    bool
        True for its own jobs, and for those of another boot or container of the same host name
        that is gone: it has no supervisor, no step of the job runs, and no program submits it at
        this moment. Their locks say so, also where the numbers of processes say nothing.
    """
    system = submission_snapshot.read_running_system(job)
    if system in ("", running_system()):
        return True
    # In this order: a submission ends when its supervisor has heard of the job.
    if (
        is_locked(job.place / _SUBMISSION_LOCK)
        or supervisor_client.supervisor_pid(system) is not None
    ):
        return False
    return not _has_running_steps(job)


@contextlib.contextmanager
def hold_submission_lock(job: Job) -> Iterator[None]:
    """Keep a job for this running system until its supervisor has heard of it.

    A supervisor that was there before the job was in the store may have ended meanwhile.
    """
    file = job.place / _SUBMISSION_LOCK
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            file.unlink(missing_ok=True)


def _has_running_steps(job: Job) -> bool:
    # Not pathlib's rglob, which raises FileNotFoundError when a folder is removed meanwhile.
    return any(
        is_locked(Path(folder, name))
        for folder, _, names in os.walk(job.place / "steps")
        for name in fnmatch.filter(names, "attempt-*.lock")
    )
