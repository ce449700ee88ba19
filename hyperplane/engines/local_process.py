"""What clusters whose processes are on this machine have in common."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import dask.config

LOOPBACK = "127.0.0.1"
#: Ends a worker process with its nanny, whatever it is doing.
PARENT_DEATH = "hyperplane.engines.parent_death"
#: Variables of allocators, in force in a process that was forked.
WORKER_MEMORY = "hyperplane.engines.worker_memory"
#: Leaves out lines of a worker process that say nothing.
NOTICES = "hyperplane.engines.dask_notices"
LOG_LINES = 40


def user_preloads() -> list[str]:
    """What the user wants each worker process to load, which a nanny's own list would replace."""
    found = dask.config.get("distributed.worker.preload")
    return [found] if isinstance(found, str) else list(found)


def worker_preloads() -> list[str]:
    """What each worker process of this machine loads: the user's modules, then this package's."""
    return [*user_preloads(), PARENT_DEATH, WORKER_MEMORY, NOTICES]


@contextmanager
def log_tail() -> Iterator[deque[str]]:
    """Keep the last lines that Dask logs in this process."""
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
