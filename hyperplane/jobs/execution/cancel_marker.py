"""Marker of a cancelled job for when the store is full: it is made by renaming a file."""

from __future__ import annotations

from contextlib import suppress

from hyperplane.jobs.store.job_records import Job

_MARKER = "cancelled"


def set_marker(job: Job) -> None:
    """Mark a job as cancelled in its folder without using disk space.

    Raises
    ------
    OSError
        If the file cannot be renamed either.
    """
    # A new file needs disk space; renaming an existing one does not.
    (job.folder_path / "lock").replace(job.folder_path / _MARKER)


def has_marker(job: Job) -> bool:
    """Whether the job was cancelled while its store could not be written."""
    return (job.folder_path / _MARKER).exists()


def remove_marker(job: Job) -> None:
    """Remove the marker: the store has the cancellation, or the job is resumed."""
    with suppress(OSError):
        (job.folder_path / _MARKER).unlink()
