"""Errors of pipeline jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hyperplane.core.errors.base import HyperplaneError


class JobError(HyperplaneError, RuntimeError):
    """A job cannot be found, or did not succeed.

    Attributes
    ----------
    job_id : str
        Id of the job; empty if the error does not concern a single job.
    """

    def __init__(self, job_id: str, message: str) -> None:
        super().__init__(f"job {job_id}: {message}" if job_id else message)
        self.job_id, self.message = job_id, message

    def __reduce__(self) -> tuple[type[JobError], tuple[str, str]]:
        return type(self), (self.job_id, self.message)


class JobFailed(JobError):
    """A step failed with a permanent error, or after its last retry."""


class JobCancelled(JobError):
    """The job was cancelled."""


class JobTimeout(JobError, TimeoutError):
    """The job exceeded its time limit."""


class JobStoreError(HyperplaneError, RuntimeError):
    """The database of jobs cannot be read or written.

    Attributes
    ----------
    store : str
        File of the database, or its URL without the password.
    passing : bool
        Whether the same call may succeed later, as after a full disk or an unreachable server.
    """

    def __init__(self, store: str, wrong: str, *, passing: bool) -> None:
        super().__init__(f"job store {store}: {wrong}")
        self.store, self.passing = store, passing


class QueryFailed(HyperplaneError, RuntimeError):
    """A GraphQL server cannot be reached, or has answered a query with errors.

    Attributes
    ----------
    errors : list of dict
        The errors of the response.
    results : list of dict
        The data of the queries that were answered before.
    """

    def __init__(
        self,
        message: str,
        errors: Sequence[Mapping[str, Any]] = (),
        results: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(message)
        self.errors, self.results = list(errors), list(results)

    def __reduce__(self) -> tuple[type[QueryFailed], tuple[str, list[Any], list[Any]]]:
        return type(self), (str(self), self.errors, self.results)
