"""Workaround for a bug of distributed 2026.8: messages that wait for a clock that went back.

Dask sends the messages of a connection in batches, and stores by the clock of the system when the
next batch may be sent. After the clock was set back, by NTP or in a virtual machine that was moved,
it sends nothing until the clock shows that time again: each task that was about to be reported
waits for as long as the clock went back. Heartbeats use other connections, so the worker does not
count as dead.
"""

from __future__ import annotations

from typing import Any

from distributed.batched import BatchedSend
from distributed.metrics import time

_FIELD = "next_deadline"


def install_message_batches() -> None:
    """Limit the time until the next batch to one interval, in this process."""
    setattr(BatchedSend, _FIELD, property(_get_deadline, _set_deadline))


def _get_deadline(batches: Any) -> float | None:
    deadline: float | None = vars(batches)[_FIELD]
    if deadline is None:
        return None
    # The same value at the next call: the batch is sent once the clock has passed it.
    vars(batches)[_FIELD] = deadline = min(deadline, time() + batches.interval)
    return deadline


def _set_deadline(batches: Any, deadline: float | None) -> None:
    vars(batches)[_FIELD] = deadline


def dask_setup(worker: object) -> None:
    """Install it in a worker process, which loads this module as a preload."""
    del worker
    install_message_batches()
