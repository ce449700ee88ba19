"""Holding a cluster in the foreground until somebody ends it."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed.deploy.cluster import Cluster

#: Seconds between looks at whether the cluster has been closed from elsewhere.
LOOK_EVERY = 0.2

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """Within its block the first Ctrl-C or SIGTERM asks for an orderly end.

    It is only noted, so that a start is not broken off halfway, with its processes left to
    themselves. A second signal does what it did before.
    """

    def __init__(self) -> None:
        self.asked = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Signals:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked.set()
        self._restore()
        # The workers may have had the signal too; what Dask says of their end is no news.
        logging.disable()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def wait(self, cluster: Cluster) -> None:
        """Return when a signal has come or somebody else has closed the cluster."""
        while cluster.status.name != "closed" and not self.asked.wait(LOOK_EVERY):
            pass
