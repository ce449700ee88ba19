"""Concurrent branches of an execution: when one fails, the others are stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TypeVar

from hyperplane.asl.errors import BranchStopped

T = TypeVar("T")


class ExecutionScope:
    """Branches of an execution that are stopped together, with the scopes inside this one."""

    def __init__(self, parent: ExecutionScope | None = None) -> None:
        # All scopes share one lock, so that a callback added during a stop is called too.
        self._lock: threading.RLock = parent._lock if parent else threading.RLock()
        self._event = threading.Event()
        self._callbacks: dict[object, Callable[[], object]] = {}

    @property
    def stopped(self) -> bool:
        """Whether the scope was stopped."""
        return self._event.is_set()

    def stop(self) -> None:
        """Stop the scope and all scopes inside it."""
        with self._lock:
            if self._event.is_set():
                return
            self._event.set()
            for callback in list(self._callbacks.values()):
                callback()

    def check(self) -> None:
        """Raise :class:`BranchStopped` if the scope was stopped."""
        if self.stopped:
            raise BranchStopped

    def wait(self, seconds: float) -> None:
        """Wait; raise :class:`BranchStopped` as soon as the scope is stopped."""
        self._event.wait(min(seconds, threading.TIMEOUT_MAX))
        self.check()

    @contextmanager
    def on_stop(self, callback: Callable[[], object]) -> Iterator[None]:
        """Call a function, which must not block, once when the scope is stopped."""
        key = object()
        with self._lock:
            self._callbacks[key] = callback
            if self.stopped:
                callback()
        try:
            yield
        finally:
            with self._lock:
                del self._callbacks[key]

    @contextmanager
    def inner(self) -> Iterator[ExecutionScope]:
        """Create a scope inside this one."""
        scope = ExecutionScope(self)
        with self.on_stop(scope.stop):
            yield scope


def run_concurrently(
    scope: ExecutionScope, functions: Sequence[Callable[[ExecutionScope], T]], limit: int
) -> list[T]:
    """Run functions in at most ``limit`` threads; return their results in order.

    Each function receives a scope inside ``scope``. When one fails, the others are stopped, and
    the first error is raised after all have ended.
    """
    if not functions:
        return []
    first: BaseException | None = None
    with scope.inner() as inner, ThreadPoolExecutor(min(limit, len(functions)), "machine") as pool:
        futures = [pool.submit(_run_or_stop, function, inner) for function in functions]
        try:
            for future in as_completed(futures):
                error = None if future.cancelled() else future.exception()
                if error is not None and (first is None or isinstance(first, BranchStopped)):
                    first = error
                    _stop_all(inner, futures)
        except BaseException:  # such as KeyboardInterrupt
            _stop_all(inner, futures)
            raise
    if first is not None:
        raise first
    return [future.result() for future in futures]


def _run_or_stop(function: Callable[[ExecutionScope], T], scope: ExecutionScope) -> T:
    """Run one function; on an error, stop the scope before the thread takes another one."""
    try:
        scope.check()
        return function(scope)
    except BaseException:
        scope.stop()
        raise


def _stop_all(scope: ExecutionScope, futures: Sequence[Future[T]]) -> None:
    scope.stop()
    for future in futures:
        future.cancel()
