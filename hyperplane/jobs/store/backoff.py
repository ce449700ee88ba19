"""Back off while a disk is full or a database is unavailable."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable

from hyperplane.core.errors import JobStoreError

#: Seconds before the first retry, and maximum.
FIRST_DELAY, MAX_DELAY = 0.5, 10.0
#: Seconds without another failure after which a failure counts as resolved.
_QUIET_SECONDS = 5.0
#: Errors of a full disk and of an exhausted quota.
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT}


def is_disk_full(error: BaseException) -> bool:
    """Whether an error of the file system means a full disk or an exhausted quota."""
    return isinstance(error, OSError) and error.errno in _DISK_FULL


def is_retryable(error: BaseException) -> bool:
    """Whether waiting may help: a full disk or quota, or a full or unavailable store."""
    return is_disk_full(error) or (isinstance(error, JobStoreError) and error.passing)


class Backoff:
    """Exponential delays between retries, announced once per series of failures.

    Parameters
    ----------
    announce : callable
        Called with a sentence at the first failure of a series, and at its end.
    clock : callable
        Monotonic clock in seconds.
    """

    def __init__(
        self, announce: Callable[[str], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._announce, self._clock = announce, clock
        self._delay, self._until = 0.0, 0.0

    @property
    def is_waiting(self) -> bool:
        """Whether the next retry is still in the future."""
        return self._clock() < self._until

    @property
    def is_failing(self) -> bool:
        """Whether the last try failed."""
        return self._delay > 0

    @property
    def is_expired(self) -> bool:
        """Whether no failure has followed for some seconds after the last retry was due."""
        return self.is_failing and self._clock() > self._until + _QUIET_SECONDS

    def record_failure(self, error: BaseException) -> float:
        """Record a failure and return the seconds until the next retry.

        Failures before the next retry belong to the same try.
        """
        if self.is_waiting:
            return self._until - self._clock()
        if not self._delay:
            self._announce(f"waiting: {_describe(error)}")
        self._delay = min(MAX_DELAY, self._delay * 2 or FIRST_DELAY)
        self._until = self._clock() + self._delay
        return self._delay

    def record_success(self) -> None:
        """Record a success, which ends the series."""
        if self._delay:
            self._announce("resuming")
        self._delay = self._until = 0.0

    def retry_now(self) -> None:
        """Make the next retry due at once."""
        self._until = min(self._until, self._clock())


def _describe(error: BaseException) -> str:
    if not isinstance(error, OSError):
        return str(error)
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror}: free space on that disk; the job then continues"
