"""Tables that several tasks of a worker process need, read once per process."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

#: Seconds after its last use for which a table is kept for the next task.
_IDLE_SECONDS = 5.0
#: Maximum bytes of the tables that are kept, except for the one that was used last.
_MAX_BYTES = 250 * 10**6


class Table(Protocol):
    """A table, perhaps with an index of it."""

    def estimated_size(self) -> int | float:
        """Return the bytes in memory."""
        ...


T = TypeVar("T", bound=Table)


@dataclass
class _Entry:
    """A table, or None while the thread that has the lock reads it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    table: Table | None = None
    readers: int = 0
    last_use: float = 0.0

    def is_in_use(self) -> bool:
        """Return whether a task has the table; if not, it is freed."""
        reference = None if self.table is None else weakref.ref(self.table)
        self.table = None
        self.table = None if reference is None else reference()
        return self.table is not None


class SharedTables:
    """Tables by key, each read by the first task that needs it and dropped when it is idle.

    A table is idle if no task has it: one task may use it for longer than it is kept for the next.
    Dask counts their bytes as memory of the process that is not of results of tasks.
    """

    def __init__(self, idle_seconds: float = _IDLE_SECONDS, max_bytes: int = _MAX_BYTES) -> None:
        self.idle_seconds, self.max_bytes = idle_seconds, max_bytes
        #: Entered while a table is read, by what measures the memory of tasks.
        self.read_context: Callable[[], AbstractContextManager[None]] = nullcontext
        self._lock = threading.Lock()
        self._entries: dict[Any, _Entry] = {}  # the one that was used last is the last one
        self._timer: threading.Timer | None = None

    def get(self, key: Any, read: Callable[[], T]) -> T:
        """Return the table of a key; one thread calls ``read``, and the next one after an error."""
        with self._lock:
            entry = self._entries.pop(key, None) or _Entry()
            self._entries[key] = entry
            entry.readers += 1
        try:
            with entry.lock:
                if entry.table is None:
                    with self.read_context():
                        entry.table = read()
                return cast("T", entry.table)
        finally:
            with self._lock:
                entry.readers -= 1
                entry.last_use = time.monotonic()
                self._drop_oldest()
                self._start_timer()

    def __len__(self) -> int:
        with self._lock:
            return len(self._entries)

    def _drop_oldest(self) -> None:
        """Drop the tables that were not used for the longest time until the others fit."""
        kept = 0
        for number, (key, entry) in enumerate(reversed(list(self._entries.items()))):
            kept += 0 if entry.table is None else int(entry.table.estimated_size())
            if not entry.readers and (entry.table is None or (number and kept > self.max_bytes)):
                del self._entries[key]

    def _start_timer(self) -> None:
        """Start the timer for the table that was not used for the longest time."""
        uses = [entry.last_use for entry in self._entries.values() if not entry.readers]
        if uses and self._timer is None:  # a table that is read starts it when it has been read
            wait = max(0.0, min(uses) + self.idle_seconds - time.monotonic())
            self._timer = threading.Timer(wait, self._drop_idle)
            self._timer.daemon = True
            self._timer.start()

    def _drop_idle(self) -> None:
        now = time.monotonic()
        with self._lock:
            self._timer = None
            for key, entry in list(self._entries.items()):
                if entry.readers or entry.last_use > now - self.idle_seconds:
                    continue
                if entry.is_in_use():
                    entry.last_use = now
                else:
                    del self._entries[key]
            self._start_timer()


#: The tables of this process.
SHARED_TABLES = SharedTables()
