"""How many writers a process lets at a store at once: few at first, more while all goes well."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: Writers at first, and at most.
INITIAL_LIMIT, MAX_LIMIT = 4, 64


class Throttle:
    """A limit that grows by one for each round without a refusal, and halves after one.

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
        """Wait for a turn, and have it for a block."""
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
        """The store asks for fewer."""
        with self._changed:
            self.limit, self._successes = max(1, self.limit // 2), 0
