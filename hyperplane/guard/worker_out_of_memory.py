"""The error of a task that does not fit in the memory of a worker."""

from __future__ import annotations

import importlib
import pickle
import sys
from contextlib import suppress
from functools import partial
from typing import Any

import cloudpickle
from distributed.scheduler import KilledWorker

from hyperplane.core.by_value import pickled_by_value
from hyperplane.core.errors import HyperplaneError


class WorkerOutOfMemory(HyperplaneError, MemoryError, KilledWorker):
    """A task did not fit in the memory of a worker, whose process was ended or paused for it.

    Also a ``MemoryError``, and Dask's ``KilledWorker``, so that code for these catches it.

    Attributes
    ----------
    task : str
        Key of the task.
    operation : str
        Its operation, in the words of Dask's collections.
    peak, limit : int
        Largest measured memory of the worker process and its limit, in bytes.
    inputs : int
        Size of the inputs of the task in bytes.
    attempts : int
        How often it was tried.
    cause : str
        ``terminate`` (ended by its nanny), ``kernel``, ``cgroup``, ``spill disk``, ``paused``,
        ``allocation`` or ``inputs`` (not started, because its inputs exceed the limit).
    fix : str
        A change to paste.
    """

    def __init__(
        self,
        message: str,
        *,
        key: Any = None,
        last_worker: Any = None,
        operation: str = "",
        peak: int = 0,
        limit: int = 0,
        inputs: int = 0,
        attempts: int = 1,
        cause: str = "terminate",
        fix: str = "",
    ) -> None:
        # The arguments of KilledWorker, whose properties read them.
        KilledWorker.__init__(self, key, last_worker, attempts - 1)
        self.message, self.operation, self.peak, self.limit = message, operation, peak, limit
        self.inputs, self.attempts, self.cause, self.fix = inputs, attempts, cause, fix

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        state = {
            "message": self.message,
            "key": self.task,
            "last_worker": self.last_worker,
            "attempts": self.attempts,
        }
        return load_memory_error, (__name__, state), self.__dict__


# Tracebacks name the public module, as they do for the other errors.
WorkerOutOfMemory.__module__ = "hyperplane.errors"


def load_memory_error(module: str, state: dict[str, Any]) -> BaseException:
    """Return the error of its attributes; without this module, a KilledWorker with a note.

    The pickled error that it replaces is its cause.
    """
    state = dict(state)
    message, original = state.pop("message"), state.pop("original", None)
    try:
        create: Any = importlib.import_module(module).WorkerOutOfMemory
    except ImportError:
        error: Any = KilledWorker(state["key"], state["last_worker"], state["attempts"] - 1)
        error.add_note(message)
    else:
        error = create(message, **state)
    if original is not None:
        with suppress(Exception):  # its class may be missing here
            error.__cause__ = pickle.loads(original)  # noqa: S301 - as Dask does with all errors
    return error  # type: ignore[no-any-return]


def pickle_loader() -> bytes:
    """Pickle :func:`load_memory_error` with its code, for clients without this package."""
    with pickled_by_value(sys.modules[__name__]):
        pickled: bytes = cloudpickle.dumps(partial(load_memory_error, __name__))
    return pickled
