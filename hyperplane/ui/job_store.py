"""The job store for the pages, and the error of a store that the configuration does not allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hyperplane.core.errors import Fault, HyperplaneError, RequestError
from hyperplane.jobs.store.jobs_home import open_store

if TYPE_CHECKING:
    from hyperplane.jobs.store.job_store import JobStore


class StoreNotOpened(HyperplaneError, RuntimeError):
    """The job store cannot be opened; the faults are of the configuration, not of the request."""

    def __init__(self, message: str, faults: Sequence[Fault] = ()) -> None:
        super().__init__(message)
        self.faults = tuple(faults)


def open_job_store() -> JobStore:
    """Open the configured job store; raise a StoreNotOpened error if its settings are faulty."""
    try:
        return open_store()
    except RequestError as error:
        raise StoreNotOpened("The job store cannot be opened:", error.faults) from error
