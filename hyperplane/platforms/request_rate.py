"""Limit of the number of requests in a second."""

from __future__ import annotations

import time


class RequestRate:
    """Assigns times to requests, in order, so that there are at most ``per_second``."""

    def __init__(self, per_second: float) -> None:
        self._pause, self._next = 1 / per_second, 0.0

    def reserve(self) -> float:
        """Return the time, of ``time.monotonic()``, from which one request may be sent.

        Examples
        --------
        >>> rate = RequestRate(20)
        >>> first = rate.reserve()
        >>> rate.reserve() - first > 0.049
        True
        """
        turn = max(self._next, time.monotonic())
        self._next = turn + self._pause
        return turn
