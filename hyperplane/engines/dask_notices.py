"""Lines of Dask on standard error that say nothing: as clusters close, and after Ctrl-C.

But for one, this concerns the handlers that Dask adds to its loggers for standard error; those that
a program has added, or configured, get the records.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dask.config
from distributed.client import AllExit
from distributed.core import Status

#: What a scheduler and a nanny write as a cluster closes while results are held or tasks run.
_LOST, _KILLED = "caused the cluster to lose", "Worker process still alive after "
#: What a worker writes of a task that its own end cancels.
_CANCELLED = "Async instruction for <Task cancelled "

# Clusters that are collected as garbage are released at any line, also within this module.
_lock = threading.RLock()
_holders = 0
_levels: list[tuple[logging.Handler, int]] = []


def hold_quiet() -> None:
    """Write no records of Dask below WARNING until as many calls of :func:`release_quiet`.

    Dask does this for each cluster by itself, and takes it back when the one that opened first
    closes: what others write from then on, as when they close, would be seen.
    """
    global _holders
    with _lock:
        _holders += 1
        if _holders > 1:
            return
        for name in ("distributed", "bokeh"):
            for handler in _handlers_of_dask(logging.getLogger(name)):
                if handler.level < logging.WARNING:
                    _levels.append((handler, handler.level))
                    handler.setLevel(logging.WARNING)


def release_quiet() -> None:
    """End one :func:`hold_quiet`; levels that the program has changed since stay."""
    global _holders
    with _lock:
        _holders -= 1
        if _holders:
            return
        for handler, level in _levels:
            if handler.level == logging.WARNING:
                handler.setLevel(level)
        _levels.clear()


@contextmanager
def without_closing_notices() -> Iterator[None]:
    """Leave out what Dask writes of results and running tasks while a cluster closes.

    Results that are lost are no news to any handler: closing means to lose them.
    """

    def is_no_loss(record: logging.LogRecord) -> bool:
        return _LOST not in _message(record)

    def is_no_end(record: logging.LogRecord) -> bool:
        return _KILLED not in _message(record)

    filters: list[tuple[logging.Filterer, Callable[[logging.LogRecord], bool]]]
    filters = [(logging.getLogger("distributed.scheduler"), is_no_loss)]
    filters += [(each, is_no_end) for each in _handlers_of_dask(logging.getLogger("distributed"))]
    for place, is_news in filters:
        place.addFilter(is_news)
    try:
        yield
    finally:
        for place, is_news in filters:
            place.removeFilter(is_news)


def dask_setup(worker: Any) -> None:
    """Leave out what a worker writes of tasks that its own end cancels; a preload of workers."""

    def is_news(record: logging.LogRecord) -> bool:
        is_open = getattr(worker, "status", None) in (Status.running, Status.paused)
        return is_open or not _message(record).startswith(_CANCELLED)

    for handler in _handlers_of_dask(logging.getLogger("distributed")):
        handler.addFilter(is_news)


def drop_interrupted_waits(loop: asyncio.AbstractEventLoop) -> None:
    """Leave out the waits of a computation that Ctrl-C has ended, which nothing asks for an error.

    A loop with an exception handler stays as it is.
    """
    if loop.get_exception_handler() is None:
        loop.set_exception_handler(_all_but_interrupted)


def _all_but_interrupted(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), AllExit):
        loop.default_exception_handler(context)


def _message(record: logging.LogRecord) -> str:
    """The text of a record; empty for one whose text cannot be made, which its handler reports."""
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - it would be raised where the program writes to its log
        return ""


def _handlers_of_dask(logger: logging.Logger) -> list[logging.Handler]:
    """The handlers of a logger that Dask has added, which write to standard error."""
    form = dask.config.get("distributed.admin.log-format")
    return [
        handler
        for handler in logger.handlers
        if type(handler) is logging.StreamHandler
        and getattr(handler.formatter, "_fmt", None) == form
    ]
