"""Orderly stop of foreground commands on Ctrl-C and SIGTERM."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

#: Seconds between checks whether another process has closed the cluster.
POLL_INTERVAL = 0.2

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Context manager in which the first Ctrl-C or SIGTERM requests an orderly stop.

    The signal only sets :attr:`stop_requested`, because an interrupted start could leave
    processes behind. A second signal has its usual effect.
    """

    def __init__(self) -> None:
        self.stop_requested = threading.Event()
        self._previous_handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        for number in _SIGNALS:
            self._previous_handlers[number] = signal.signal(number, self._request_stop)
        return self

    def __exit__(self, *exception: object) -> None:
        self._restore()

    def _request_stop(self, number: int, frame: FrameType | None) -> None:
        self.stop_requested.set()
        self._restore()
        # The workers may have received the signal, too; Dask would log their end as errors.
        logging.disable()

    def _restore(self) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)

    def wait(self, is_closed: Callable[[], bool]) -> None:
        """Wait for a signal, or until another process has closed the cluster."""
        while not is_closed() and not self.stop_requested.wait(POLL_INTERVAL):
            pass
