"""Time limit of a check before a start, and its early end when the user presses Ctrl-C."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from hyperplane.guard.preflight.resolver_loop import DaemonResolverLoop

#: Minimum seconds for which a service is waited for.
_SHORTEST_SECONDS = 0.5

T = TypeVar("T")


class CheckDeadline:
    """Time until which a check should run; it ends earlier if the checks are interrupted.

    Parameters
    ----------
    end : float
        End of the check by ``time.monotonic``.
    """

    def __init__(self, end: float) -> None:
        self._end = end
        self._lock = threading.Lock()
        self._stopped = False
        self._cancel: Callable[[], object] | None = None

    @property
    def remaining(self) -> float:
        """Seconds for which a service may be waited for."""
        return max(_SHORTEST_SECONDS, self._end - time.monotonic())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in a new event loop of this thread.

        Raises
        ------
        asyncio.CancelledError
            If the check was stopped.
        """
        with asyncio.Runner(loop_factory=DaemonResolverLoop) as runner:
            return runner.run(self._run(coroutine))

    async def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(coroutine)
        cancel = partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel)
        with self._lock:
            self._cancel = cancel
            if self._stopped:
                cancel()
        try:
            return await task
        finally:
            with self._lock:  # the loop may be closed after this
                self._cancel = None

    def stop(self) -> None:
        """Cancel the coroutine that the check runs, now or later; for any thread."""
        with self._lock:
            if self._cancel is not None and not self._stopped:
                self._cancel()
            self._stopped = True
