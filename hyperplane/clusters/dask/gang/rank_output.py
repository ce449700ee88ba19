"""Output of a rank: its lines are sent to the client as events, and the last ones are kept."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import IO

#: Longest line, in bytes; the rest of a longer one is a line by itself.
_MAX_LINE = 8_000
#: Most bytes of a rank that are sent to the client, and that the scheduler keeps meanwhile.
_MAX_SENT = 10_000_000
#: Last lines that the error about a rank shows.
_TAIL_LINES = 20
#: Seconds between two events.
_INTERVAL = 0.1


class RankOutput:
    """Reader of the output of a process, in a thread.

    Parameters
    ----------
    stream : binary file
        Standard output and standard error of the process.
    send : callable
        Function that sends lines to the client.
    """

    def __init__(self, stream: IO[bytes], send: Callable[[list[str]], None]) -> None:
        self._stream, self._send = stream, send
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._unsent: list[str] = []
        self._sent = 0
        self._lock = threading.Lock()
        self._last = time.monotonic()
        self._thread = threading.Thread(target=self._read, name="hyperplane-rank", daemon=True)
        self._thread.start()

    def flush(self, *, due: bool = True) -> None:
        """Send the lines that were read since the last event; without ``due`` not too often."""
        with self._lock:
            if self._unsent and (due or time.monotonic() - self._last > _INTERVAL):
                self._send(self._unsent)
                self._unsent = []
                self._last = time.monotonic()

    def finish(self, seconds: float = 2.0) -> str:
        """Wait for the end of the output, send the rest and return the last lines.

        The wait is limited, because a process that left the group may have the stream open.
        """
        self._thread.join(seconds)
        self.flush()
        with self._lock:
            return "\n".join(self._tail)

    def _read(self) -> None:
        while line := self._stream.readline(_MAX_LINE):
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            with self._lock:
                self._tail.append(text)
                if self._sent <= _MAX_SENT:
                    self._sent += len(line)
                    is_last = self._sent > _MAX_SENT
                    notice = f"(more than {_MAX_SENT:,} bytes of output; the rest is not shown)"
                    self._unsent.append(notice if is_last else text)
