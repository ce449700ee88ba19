"""Total time limit of a connection: its own timeouts are for each answer, however slow."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from types import TracebackType


class ConnectionDeadline:
    """Break connections when a total time is over, within a block.

    Whatever then waits for the connection fails as if the server had closed it.

    Parameters
    ----------
    seconds : float
        Total time of the block.
    """

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds
        self._lock, self._sockets = threading.Lock(), list[socket.socket]()
        self._timer = threading.Timer(seconds, self._break_connections)
        self._timer.daemon = True

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self._ends

    def watch(self, connection: socket.socket) -> None:
        """Break a connection at the end of the time, also if TLS takes over its socket."""
        with self._lock:
            # A copy: the socket itself is replaced when TLS begins.
            self._sockets.append(connection.dup())
        if self.is_over:
            self._break_connections()

    def _break_connections(self) -> None:
        with self._lock:
            for each in self._sockets:
                try:
                    each.shutdown(socket.SHUT_RDWR)
                except OSError:  # it is not connected any more
                    continue

    def __enter__(self) -> ConnectionDeadline:
        # Python 3.12 starts no thread while the interpreter ends; each answer still has a limit.
        with suppress(RuntimeError):
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        with self._lock:
            for each in self._sockets:
                each.close()
            self._sockets.clear()
