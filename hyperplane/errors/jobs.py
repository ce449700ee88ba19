"""What becomes of jobs that do not end well."""

from __future__ import annotations

from hyperplane.errors.requests import HyperplaneError


class JobError(HyperplaneError, RuntimeError):
    """A job cannot be found, or did not end well.

    Attributes
    ----------
    job_id : str
        The job.
    """

    def __init__(self, job_id: str, message: str) -> None:
        super().__init__(f"job {job_id}: {message}")
        self.job_id, self.message = job_id, message

    def __reduce__(self) -> tuple[type[JobError], tuple[str, str]]:
        return type(self), (self.job_id, self.message)


class JobFailed(JobError):
    """A step failed, and trying again did not help or made no sense."""


class JobCancelled(JobError):
    """Somebody cancelled it."""


class JobTimeout(JobError, TimeoutError):
    """It took longer than it may."""
