"""The errors of a task whose worker processes ended, for lack of memory or another reason."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

import cloudpickle
from distributed.scheduler import KilledWorker

from hyperplane.core.by_value import pickled_by_value
from hyperplane.core.errors import HyperplaneError


class _Explanation:
    """Text and pickle of a KilledWorker with a message that explains it.

    Subclasses set the arguments of KilledWorker, whose properties read them.
    """

    message: str
    attempts: int
    task: Any
    last_worker: Any
    #: What tells :func:`load_memory_error` the class, beside the state that all classes have.
    _class_state: ClassVar[Mapping[str, str]] = {}

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        state = {
            **self._class_state,
            "message": self.message,
            "key": self.task,
            "last_worker": self.last_worker,
            "attempts": self.attempts,
        }
        return load_memory_error, (__name__, state), self.__dict__


class WorkerOutOfMemory(_Explanation, HyperplaneError, MemoryError, KilledWorker):
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
        KilledWorker.__init__(self, key, last_worker, attempts - 1)
        self.message, self.operation, self.peak, self.limit = message, operation, peak, limit
        self.inputs, self.attempts, self.cause, self.fix = inputs, attempts, cause, fix


class WorkerCrash(_Explanation, HyperplaneError, RuntimeError, KilledWorker):
    """The worker processes of a task ended, without a sign of a lack of memory.

    Also a ``RuntimeError``, and Dask's ``KilledWorker``, so that code for these catches it.

    Attributes
    ----------
    task : str
        Key of the task.
    operation : str
        Its operation, in the words of Dask's collections.
    exit_code : int
        Exit code of the last process; that of a signal is negative.
    attempts : int
        How often the task was tried.
    fix : str
        What to do.
    """

    _class_state: ClassVar[Mapping[str, str]] = {"error": "WorkerCrash"}

    def __init__(
        self,
        message: str,
        *,
        key: Any = None,
        last_worker: Any = None,
        operation: str = "",
        exit_code: int = 1,
        attempts: int = 1,
        fix: str = "",
    ) -> None:
        KilledWorker.__init__(self, key, last_worker, attempts - 1)
        self.message, self.operation, self.exit_code = message, operation, exit_code
        self.attempts, self.fix = attempts, fix


# Tracebacks name the public module, as they do for the other errors.
WorkerOutOfMemory.__module__ = WorkerCrash.__module__ = "hyperplane.errors"


def load_memory_error(module: str, state: dict[str, Any]) -> BaseException:
    """Return the error of its attributes; without this module, a KilledWorker with a note.

    The pickled error that it replaces is its cause.
    """
    state = dict(state)
    name = state.pop("error", "WorkerOutOfMemory")
    message, original = state.pop("message"), state.pop("original", None)
    try:
        create: Any = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):  # without this package, or with an earlier version
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
