"""Parts of a run that end together: when one branch fails, the others stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TypeVar

from hyperplane.asl.errors import BranchStopped

T = TypeVar("T")


class ExecutionScope:
    """A part of a run, and the parts in it; stopping it stops those."""

    def __init__(self, parent: ExecutionScope | None = None) -> None:
        # One lock for all: what is added while something stops is stopped too.
        self._lock: threading.RLock = parent._lock if parent else threading.RLock()
        self._event = threading.Event()
        self._callbacks: dict[object, Callable[[], object]] = {}

    @property
    def stopped(self) -> bool:
        """Whether this part is to end."""
        return self._event.is_set()

    def stop(self) -> None:
        """Say so to everything in it."""
        with self._lock:
            if self._event.is_set():
                return
            self._event.set()
            for callback in list(self._callbacks.values()):
                callback()

    def check(self) -> None:
        """Raise :class:`Stopped` if this part is to end."""
        if self.stopped:
            raise BranchStopped

    def wait(self, seconds: float) -> None:
        """Wait, or raise :class:`Stopped` as soon as this part is to end."""
        self._event.wait(seconds)
        self.check()

    @contextmanager
    def on_stop(self, callback: Callable[[], object]) -> Iterator[None]:
        """Have something called, once and quickly, when this part stops."""
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
        """A part of this part."""
        scope = ExecutionScope(self)
        with self.on_stop(scope.stop):
            yield scope


def run_concurrently(
    scope: ExecutionScope, jobs: Sequence[Callable[[ExecutionScope], T]], limit: int
) -> list[T]:
    """Do several things at once; when one fails, the others stop.

    Parameters
    ----------
    scope : Scope
        What they are part of.
    jobs : sequence of callable
        Each gets the scope it works in.
    limit : int
        How many threads work at once.

    Returns
    -------
    list
        What the jobs return, in their order. The first failure is raised instead, once all
        the others have ended.
    """
    if not jobs:
        return []
    first: BaseException | None = None
    with scope.inner() as inner, ThreadPoolExecutor(min(limit, len(jobs)), "machine") as pool:
        futures = [pool.submit(_run_or_stop, job, inner) for job in jobs]
        try:
            for future in as_completed(futures):
                error = None if future.cancelled() else future.exception()
                if error is not None and (first is None or isinstance(first, BranchStopped)):
                    first = error
                    _stop_all(inner, futures)
        except BaseException:  # an interrupt from the keyboard, above all
            _stop_all(inner, futures)
            raise
    if first is not None:
        raise first
    return [future.result() for future in futures]


def _run_or_stop(job: Callable[[ExecutionScope], T], scope: ExecutionScope) -> T:
    """One of the jobs; its thread stops the others itself, before it takes up the next."""
    try:
        scope.check()
        return job(scope)
    except BaseException:
        scope.stop()
        raise


def _stop_all(scope: ExecutionScope, futures: Sequence[Future[T]]) -> None:
    scope.stop()
    for future in futures:
        future.cancel()
