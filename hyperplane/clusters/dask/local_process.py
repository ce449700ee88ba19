"""Addresses, preloads and log capture for worker processes on this machine."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import dask.config

LOOPBACK = "127.0.0.1"
#: Preload: kills a worker process when its parent process dies.
PARENT_DEATH = "hyperplane.clusters.dask.parent_death"
#: Preload: applies environment variables of memory allocators.
WORKER_MEMORY = "hyperplane.clusters.dask.worker_memory"
#: Preload: suppresses log messages that mean nothing.
NOTICES = "hyperplane.clusters.dask.log_filters"
LOG_LINES = 40


def user_preloads() -> list[str]:
    """Return the user's worker preloads, which a list given to a nanny would replace."""
    found = dask.config.get("distributed.worker.preload")
    return [found] if isinstance(found, str) else list(found)


def worker_preloads() -> list[str]:
    """Return the preloads of worker processes on this machine: the user's, then this package's."""
    return [*user_preloads(), PARENT_DEATH, WORKER_MEMORY, NOTICES]


@contextmanager
def log_tail() -> Iterator[deque[str]]:
    """Collect the last lines that Dask logs in this process during the block."""
    lines: deque[str] = deque(maxlen=LOG_LINES)

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.name}: {record.getMessage()}")

    handler = Keep()
    dask_logger = logging.getLogger("distributed")
    dask_logger.addHandler(handler)
    try:
        yield lines
    finally:
        dask_logger.removeHandler(handler)
