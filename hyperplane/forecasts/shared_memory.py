"""Memory of tables that all tasks of a process share, as the right side of a join."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from hyperplane.forecasts.memory_meter import read_library_memory

#: Only tasks that share tables have imported it.
_MODULE = "hyperplane.collections.frames.shared_tables"


class SharedMemoryMeter:
    """Context that measures what reading shared tables adds to the own allocators of libraries.

    The memory of the tables, and what was needed to read them, are in a process once, however many
    of its threads run tasks that use the tables.
    """

    def __init__(self) -> None:
        self.size = 0

    def __enter__(self) -> SharedMemoryMeter:
        module: Any = sys.modules.get(_MODULE)
        self._tables = None if module is None else module.SHARED_TABLES
        if self._tables is not None:
            self._tables.read_context = self._measure
        return self

    def __exit__(self, *exception: object) -> None:
        if self._tables is not None:
            self._tables.read_context = nullcontext

    @contextmanager
    def _measure(self) -> Iterator[None]:
        before = read_library_memory()
        yield
        self.size += max(0, read_library_memory() - before)
