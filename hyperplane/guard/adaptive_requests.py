"""Whether a cluster is adaptive, from the requests that its scheduler receives.

``Cluster.adapt`` may be called at any time, in another process than that of the scheduler.

Remote schedulers receive this module pickled by value, so it imports no other module of this
package.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Scheduler

#: Request with which Dask's Adaptive asks how many workers the tasks need: once in its interval,
#: but not while the workers start that it has asked for.
_REQUEST = "adaptive_target"


class AdaptiveRequests:
    """The requests of adaptive scaling that a scheduler has received."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._interval = 0.0

    def observe(self, scheduler: Scheduler) -> None:
        """Note the time of each request from now on."""
        answer: Any = scheduler.handlers[_REQUEST]

        @functools.wraps(answer)
        def note_and_answer(*args: Any, **kwargs: Any) -> Any:
            self._note()
            return answer(*args, **kwargs)

        scheduler.handlers[_REQUEST] = note_and_answer

    def _note(self) -> None:
        now = time.monotonic()
        if self._last is not None:
            self._interval = now - self._last
        self._last = now

    def are_regular(self, seconds: float) -> bool:
        """Return whether the last request is recent: within this time, or two intervals."""
        if self._last is None:
            return False
        return time.monotonic() - self._last <= max(seconds, 2 * self._interval)
