"""The cancellation of a job that no store can take: a full disk has room for a new name."""

from __future__ import annotations

from contextlib import suppress

from hyperplane.jobs.states import Job

_MARKER = "cancelled"


def set_marker(job: Job) -> None:
    """Note in the job's folder that the job is cancelled, though nothing can be written there.

    Raises
    ------
    OSError
        When a file of the folder cannot be renamed either.
    """
    # A new file needs room, another name for a file that is there does not.
    (job.place / "lock").replace(job.place / _MARKER)


def has_marker(job: Job) -> bool:
    """Whether the job was cancelled while its store could not be written."""
    return (job.place / _MARKER).exists()


def remove_marker(job: Job) -> None:
    """Forget that the job was cancelled: the store has it now, or the job is resumed."""
    with suppress(OSError):
        (job.place / _MARKER).unlink()
