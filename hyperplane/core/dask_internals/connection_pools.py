"""Connection pools of distributed's servers that close while connections are cancelled.

Distributed cancels a connection that is being opened by a change of its ``asyncio.timeout``. When
the pool closes, it does so again, and a timeout that has just expired raises a ``RuntimeError``:
``Scheduler.close`` ends in the middle, and each later one waits forever.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

__all__ = ["allow_repeated_cancels"]

_Cancel = Callable[[str], None]


class _Cancels(set[_Cancel]):
    """Functions that cancel connections, each of which may be called again."""

    def __iter__(self) -> Iterator[_Cancel]:
        return iter([partial(_cancel, each) for each in super().__iter__()])


def _cancel(cancel: _Cancel, reason: str) -> None:
    with suppress(RuntimeError):  # of a timeout that has expired, so that it is cancelled already
        cancel(reason)


def allow_repeated_cancels(server: Any) -> None:
    """Let a new server of distributed close while its connections are being cancelled."""
    server.rpc._connecting = defaultdict(_Cancels)
