"""Locks and markers in a job's folder: which process runs it, and whether it is cancelled.

Containers may share a host name and the folders of jobs, but each has a supervisor.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hyperplane.jobs import supervisor_client
from hyperplane.jobs.store.job_records import Job
from hyperplane.jobs.submission import submission_snapshot
from hyperplane.platforms.local.file_locks import exclusive_lock, is_locked, try_lock
from hyperplane.platforms.local.process_identity import running_system

#: File in a job's folder that is locked while the job is submitted.
_SUBMISSION_LOCK = "submission.lock"
#: File that is locked while a process runs the job, and the marker that it is renamed to if the
#: store has no room for a cancellation.
_LOCK, _CANCEL_MARKER = "lock", "cancelled"


def claim_job(folder: Path) -> Any:
    """Lock a job for this process and return the open file; None if another process has it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return try_lock(folder / _LOCK)


def can_adopt(job: Job) -> bool:
    """Whether a supervisor of this running system may run a job of this machine.

    True for jobs of this running system, and for jobs of another boot or container with the same
    host name if the other one has no supervisor, runs no step of the job and is not submitting it.
    File locks decide, because process IDs of another namespace mean nothing here.
    """
    system = submission_snapshot.read_running_system(job)
    if system in ("", running_system()):
        return True
    # The submission lock first: it is held until the supervisor has received the job.
    if (
        is_locked(job.folder_path / _SUBMISSION_LOCK)
        or supervisor_client.supervisor_pid(system) is not None
    ):
        return False
    return not _has_running_steps(job)


@contextlib.contextmanager
def hold_submission_lock(job: Job) -> Iterator[None]:
    """Mark a job as being submitted by this running system, for a block.

    Otherwise another container could adopt the job, because the notified supervisor may have
    ended before the job was in the store.
    """
    file = job.folder_path / _SUBMISSION_LOCK
    with exclusive_lock(file):
        try:
            yield
        finally:
            file.unlink(missing_ok=True)


def _has_running_steps(job: Job) -> bool:
    # Not pathlib's rglob, which raises FileNotFoundError when a folder is removed meanwhile.
    return any(
        is_locked(Path(folder, name))
        for folder, _, names in os.walk(job.folder_path / "steps")
        for pattern in ("attempt-*.lock", "forecast.lock")
        for name in fnmatch.filter(names, pattern)
    )


def is_in_use(job: Job) -> bool:
    """Whether a process runs the job or one of its steps, or is submitting it."""
    folder = job.folder_path
    return (
        is_locked(folder / _LOCK) or is_locked(folder / _SUBMISSION_LOCK) or _has_running_steps(job)
    )


def mark_cancelled(job: Job) -> None:
    """Mark a job as cancelled in its folder without using disk space.

    Raises
    ------
    OSError
        If the file cannot be renamed either.
    """
    # A new file needs disk space; renaming an existing one does not.
    (job.folder_path / _LOCK).replace(job.folder_path / _CANCEL_MARKER)


def is_marked_cancelled(job: Job) -> bool:
    """Whether the job was cancelled while its store could not be written."""
    return (job.folder_path / _CANCEL_MARKER).exists()


def remove_cancel_marker(job: Job) -> None:
    """Remove the marker, after the cancellation was stored or the job is resumed."""
    with contextlib.suppress(OSError):
        (job.folder_path / _CANCEL_MARKER).unlink()
