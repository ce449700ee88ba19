"""Suppress log messages of Dask that are expected: of shuffles, at the end, and after Ctrl-C.

The error of a task is raised by the call that waits for its result, so the log of a worker has one
line about it on standard error, and none if that is a notebook. Warnings of a cluster are notes in
a notebook, where text on standard error looks like an error.

Except for lost results and interrupted waits, this affects only the handlers for standard error
that Dask itself adds to its loggers. Handlers that the program has added or configured still get
the records.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dask.config
from distributed.client import AllExit
from distributed.core import Status

from hyperplane.core.notebook_output import find_kernel_shell, show_note, show_warnings_as_notes

#: Messages of a scheduler and a nanny when a cluster closes while it holds results or runs tasks.
_LOST, _KILLED = "caused the cluster to lose", "Worker process still alive after "
#: Message of a worker about a task that is cancelled because the worker closes.
_CANCELLED = "Async instruction for <Task cancelled "
#: Message of a worker whose heartbeat was lost, and seconds after which it is shown. The connection
#: of a scheduler that closes may end before the worker begins to close.
_LOST_HEARTBEAT, _HEARTBEAT_SECONDS = "Failed to communicate with scheduler during heartbeat", 2.0
#: Message of a worker about a failed task: key, state, task, error and traceback with escapes.
_FAILED, _FAILED_FIELDS = "Compute Failed\n", 5
#: Most characters of an error that a worker writes to standard error.
_MAX_ERROR = 300
#: Messages about worker processes that memory has ended; MemoryExplainer logs one that has more.
_EXPLAINED = ("memory budget. Restarting", "Restarting worker (status=")
#: Log of a worker about its full memory; PressureWarnings has a note about what lasts.
_MEMORY_LOG = "distributed.worker.memory"
#: Logger and texts of the two warnings of a scheduler about each shuffle, which say only that it
#: begins and ends.
_SHUFFLES = "distributed.shuffle._scheduler_plugin"
_ROUTINE = (" initialized by task ", " deactivated due to stimulus ")
#: Variable of worker processes whose standard error a notebook shows.
NOTEBOOK_VARIABLE = "HYPERPLANE_NOTEBOOK"

# Reentrant: the garbage collector can release a cluster at any line, also within this module.
_lock = threading.RLock()
_holders = 0
_levels: list[tuple[logging.Handler, int]] = []
_filtered: list[logging.Handler] = []


def raise_log_level() -> None:
    """Hide Dask's log records below WARNING, and routine ones, until each call has been undone.

    :func:`restore_log_level` undoes one call. Dask itself raises the level for each cluster, but
    restores it when the cluster that was opened first closes; the messages of the other clusters
    would be shown from then on.
    """
    global _holders
    show_as_notes()
    with _lock:
        _holders += 1
        if _holders > 1:
            return
        for name in ("distributed", "bokeh"):
            for handler in _dask_handlers(logging.getLogger(name)):
                handler.filters.insert(0, _is_not_routine)  # before the one that shows notes
                _filtered.append(handler)
                if handler.level < logging.WARNING:
                    _levels.append((handler, handler.level))
                    handler.setLevel(logging.WARNING)


def restore_log_level() -> None:
    """Undo one :func:`raise_log_level`, but keep levels that the program has changed since."""
    global _holders
    with _lock:
        _holders -= 1
        if _holders:
            return
        for handler, level in _levels:
            if handler.level == logging.WARNING:
                handler.setLevel(level)
        for handler in _filtered:
            handler.removeFilter(_is_not_routine)
        _levels.clear()
        _filtered.clear()


def _is_not_routine(record: logging.LogRecord) -> bool:
    """Filter of a handler for standard error."""
    if record.name != _SHUFFLES:
        return True
    text = _message(record)
    return not any(each in text for each in _ROUTINE)


def show_as_notes() -> None:
    """Show warnings of Dask and of this package as notes; do nothing outside notebooks."""
    show_warnings_as_notes()
    if find_kernel_shell() is None:
        return
    for handler in _dask_handlers(logging.getLogger("distributed")):
        if not any(isinstance(each, _NoteFilter) for each in handler.filters):
            handler.addFilter(_NoteFilter())


class _NoteFilter(logging.Filter):
    """Filter of a handler for standard error: in a notebook its warnings are notes instead.

    It is the last filter of its handler.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write a record to standard error."""
        if find_kernel_shell() is None or record.levelno < logging.WARNING:
            return True
        text = _message(record)
        if any(each in text for each in _EXPLAINED):
            return False
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text}: {record.exc_info[1]!r}"
        return not show_note(f"{record.name}: {text}")


def worker_variables() -> dict[str, str]:
    """Return environment variables of worker processes that this process starts."""
    return {} if find_kernel_shell() is None else {NOTEBOOK_VARIABLE: "1"}


@contextmanager
def drop_closing_messages() -> Iterator[None]:
    """Suppress messages about lost results and killed workers while a cluster closes.

    Messages about lost results are suppressed for all handlers: closing discards all results.
    """

    def is_not_lost(record: logging.LogRecord) -> bool:
        return _LOST not in _message(record)

    def is_not_killed(record: logging.LogRecord) -> bool:
        return _KILLED not in _message(record)

    filters: list[tuple[logging.Filterer, Callable[[logging.LogRecord], bool]]]
    filters = [(logging.getLogger("distributed.scheduler"), is_not_lost)]
    dask_handlers = _dask_handlers(logging.getLogger("distributed"))
    filters += [(handler, is_not_killed) for handler in dask_handlers]
    for filterer, is_shown in filters:
        filterer.filters.insert(0, is_shown)  # before the one that shows notes
    try:
        yield
    finally:
        for filterer, is_shown in filters:
            filterer.removeFilter(is_shown)


def dask_setup(worker: Any) -> None:
    """Suppress messages about cancelled tasks and lost heartbeats of a worker that closes.

    Those about failed tasks are shortened. ``cluster.get_logs()`` has all of them. This module is a
    preload of workers, which call this function.
    """
    for handler in _dask_handlers(logging.getLogger("distributed")):
        found = [each for each in handler.filters if isinstance(each, _WorkerFilter)]
        of_workers = found[0] if found else _WorkerFilter(handler)
        of_workers.workers.add(worker)
        if not found:
            handler.filters.insert(0, of_workers)


class _WorkerFilter(logging.Filter):
    """Filter of a handler for all workers of this process, which a record does not name.

    Parameters
    ----------
    handler : logging.Handler
        The handler.
    """

    def __init__(self, handler: logging.Handler) -> None:
        super().__init__()
        self._handler = handler
        self.workers: weakref.WeakSet[Any] = weakref.WeakSet()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write a record now."""
        text = _message(record)
        if text.startswith(_FAILED) and len(record.args or ()) == _FAILED_FIELDS:
            if not os.environ.get(NOTEBOOK_VARIABLE):
                self._handler.handle(_shorten_failure(record))
            return False
        if record.name == _MEMORY_LOG and os.environ.get(NOTEBOOK_VARIABLE):
            return False
        if text.startswith(_CANCELLED):
            return self._is_of_open_worker()
        if not text.startswith(_LOST_HEARTBEAT):
            return True
        try:
            loop = asyncio.get_running_loop()  # that of the worker, if Dask logs the message
        except RuntimeError:
            return True
        loop.call_later(_HEARTBEAT_SECONDS, self._emit, record)
        return False

    def _is_of_open_worker(self) -> bool:
        """Return whether no worker is closing; those that have closed before log nothing."""
        workers = list(self.workers)
        others = [each for each in workers if getattr(each, "status", None) != Status.closed]
        return all(map(_is_open, others or workers))

    def _emit(self, record: logging.LogRecord) -> None:
        """Write a record that was held back, unless all workers have begun to close."""
        if any(map(_is_open, self.workers)):
            self._handler.acquire()
            try:
                self._handler.emit(record)
            finally:
                self._handler.release()


def _shorten_failure(record: logging.LogRecord) -> logging.LogRecord:
    """Return the record of a failed task with its name and its error only."""
    fields: Any = record.args
    short = copy.copy(record)
    short.msg, short.args = "task %s failed: %s", (fields[0], str(fields[3])[:_MAX_ERROR])
    return short


def _is_open(worker: Any) -> bool:
    return getattr(worker, "status", None) in (Status.running, Status.paused)


def drop_interrupted_waits(loop: asyncio.AbstractEventLoop) -> None:
    """Suppress asyncio's messages about waits of a computation that Ctrl-C has interrupted.

    Nothing retrieves the exceptions of these waits. A loop that has an exception handler keeps it.
    """
    if loop.get_exception_handler() is None:
        loop.set_exception_handler(_all_but_interrupted)


def _all_but_interrupted(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), AllExit):
        loop.default_exception_handler(context)


def _message(record: logging.LogRecord) -> str:
    """Return the text of a record, or "" if it cannot be formatted; its handler reports that."""
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - a filter would raise it in the logging call of the program
        return ""


def _dask_handlers(logger: logging.Logger) -> list[logging.Handler]:
    """Return the handlers for standard error that Dask has added to a logger."""
    form = dask.config.get("distributed.admin.log-format")
    return [
        handler
        for handler in logger.handlers
        if type(handler) is logging.StreamHandler
        and getattr(handler.formatter, "_fmt", None) == form
    ]
