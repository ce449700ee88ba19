"""Errors of machine learning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hyperplane.core.errors.base import HyperplaneError


class SearchFailed(HyperplaneError, RuntimeError):
    """A search ended because too many of its trials failed.

    Attributes
    ----------
    failed : int
        Number of failed trials.
    last : str
        Error of the trial that failed last.
    """

    def __init__(self, message: str, *, failed: int, last: str) -> None:
        super().__init__(message)
        self.failed, self.last = failed, last


class GangFailed(HyperplaneError, RuntimeError):
    """A process of a gang failed, and there were no restarts left; all others were ended.

    Attributes
    ----------
    rank : int
        Rank that failed first; -1 if the gang did not start.
    worker : str
        Address of its worker.
    exit_code : int
        Exit code of its process; negative for the number of a signal.
    traceback : str
        Traceback of the exception that its function raised; may be empty.
    log_tail : str
        Last lines of its output; may be empty.
    restarts : int
        Number of restarts before.
    """

    def __init__(
        self,
        message: str,
        *,
        rank: int = -1,
        worker: str = "",
        exit_code: int = 0,
        traceback: str = "",
        log_tail: str = "",
        restarts: int = 0,
    ) -> None:
        super().__init__(message)
        self.rank, self.worker, self.exit_code = rank, worker, exit_code
        self.traceback, self.log_tail, self.restarts = traceback, log_tail, restarts


class GangTimeout(GangFailed, TimeoutError):
    """The processes of a gang could not start within its time-out."""

    if not TYPE_CHECKING:
        # The first base has another __new__, which cannot create an object of OSError's layout.
        __new__ = TimeoutError.__new__


class TrainingFailed(HyperplaneError, RuntimeError):
    """Training with a parameter server failed; the cause is the error of a batch, if any."""
