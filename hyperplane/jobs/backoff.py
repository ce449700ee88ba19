"""Waiting for what may pass: a full disk, or a database that is away."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable

from hyperplane.errors import JobStoreError

#: Seconds before the first try again, and at most.
FIRST_DELAY, MAX_DELAY = 0.5, 10.0
#: Seconds without another failure after which what failed has passed.
_QUIET_SECONDS = 5.0
#: What a file system answers that has no room, or none for this user.
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT}


def is_disk_full(error: BaseException) -> bool:
    """Whether an error is that of a full disk or quota, outside of the store."""
    return isinstance(error, OSError) and error.errno in _DISK_FULL


def is_retryable(error: BaseException) -> bool:
    """Whether waiting may help: a full disk or quota, or a store that is full or away."""
    return is_disk_full(error) or (isinstance(error, JobStoreError) and error.passing)


class Backoff:
    """Growing delays between tries at what may pass, announced once for each time it begins.

    Parameters
    ----------
    say : callable
        Takes the announcement.
    clock : callable
        Seconds that never go back.
    """

    def __init__(
        self, say: Callable[[str], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say, self._clock = say, clock
        self._delay, self._until = 0.0, 0.0

    @property
    def is_waiting(self) -> bool:
        """Whether the time of the next try has not come."""
        return self._clock() < self._until

    @property
    def is_failing(self) -> bool:
        """Whether the last try failed."""
        return self._delay > 0

    @property
    def is_expired(self) -> bool:
        """Whether the last failure is so long ago that the next one is another matter."""
        return self.is_failing and self._clock() > self._until + _QUIET_SECONDS

    def record_failure(self, error: BaseException) -> float:
        """Note that a try failed, and give the seconds until the next one.

        Failures before the time of the next try belong to the same one.
        """
        if self.is_waiting:
            return self._until - self._clock()
        if not self._delay:
            self._say(f"waiting: {_describe(error)}")
        self._delay = min(MAX_DELAY, self._delay * 2 or FIRST_DELAY)
        self._until = self._clock() + self._delay
        return self._delay

    def record_success(self) -> None:
        """Note that a try succeeded."""
        if self._delay:
            self._say("going on")
        self._delay = self._until = 0.0

    def retry_now(self) -> None:
        """Make the next try at once."""
        self._until = min(self._until, self._clock())


def _describe(error: BaseException) -> str:
    if not isinstance(error, OSError):
        return str(error)
    of = f"{error.filename}: " if error.filename else ""
    return f"{of}{error.strerror}: make room on its disk; the job goes on then"
