"""Limit the concurrent requests of a process to a store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: Initial and maximum number of concurrent requests.
INITIAL_LIMIT, MAX_LIMIT = 4, 64


class Throttle:
    """Adaptive concurrency limit (additive increase, multiplicative decrease).

    Examples
    --------
    >>> limit = Throttle()
    >>> with limit.acquire():
    ...     limit.limit
    4
    """

    def __init__(self) -> None:
        self.limit = INITIAL_LIMIT
        self._busy = 0
        self._successes = 0
        self._changed = threading.Condition()

    @contextmanager
    def acquire(self) -> Iterator[None]:
        """Wait until a request may start, and count it as running in this block."""
        with self._changed:
            self._changed.wait_for(lambda: self._busy < self.limit)
            self._busy += 1
        try:
            yield
        finally:
            with self._changed:
                self._busy -= 1
                self._successes += 1
                if self._successes >= self.limit:
                    self.limit, self._successes = min(MAX_LIMIT, self.limit + 1), 0
                self._changed.notify_all()

    def reduce(self) -> None:
        """Halve the limit, as the store has refused a request."""
        with self._changed:
            self.limit, self._successes = max(1, self.limit // 2), 0
