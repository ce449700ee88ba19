"""What becomes of jobs that do not end well."""

from __future__ import annotations

from hyperplane.errors.requests import HyperplaneError


class JobError(HyperplaneError, RuntimeError):
    """A job cannot be found, or did not end well.

    Attributes
    ----------
    job_id : str
        The job; empty when the error is about no single job.
    """

    def __init__(self, job_id: str, message: str) -> None:
        super().__init__(f"job {job_id}: {message}" if job_id else message)
        self.job_id, self.message = job_id, message

    def __reduce__(self) -> tuple[type[JobError], tuple[str, str]]:
        return type(self), (self.job_id, self.message)


class JobFailed(JobError):
    """A step failed, and trying again did not help or made no sense."""


class JobCancelled(JobError):
    """Somebody cancelled it."""


class JobTimeout(JobError, TimeoutError):
    """It took longer than it may."""


class JobStoreError(HyperplaneError, RuntimeError):
    """The database with the state of jobs cannot be read or written.

    Attributes
    ----------
    store : str
        Its file, or its URL without the password.
    passing : bool
        Whether the same call may succeed later, as with a full disk or a server that is away.
    """

    def __init__(self, store: str, wrong: str, *, passing: bool) -> None:
        super().__init__(f"job store {store}: {wrong}")
        self.store, self.passing = store, passing
