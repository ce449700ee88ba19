"""Defer Ctrl-C in a start, and pass on what other signal handlers of the program raise in it.

Python raises ``KeyboardInterrupt`` between any two instructions of the main thread, for example
after a folder is created and before its name is stored, or after a cluster runs and before its
object is returned. Every cluster therefore starts within :func:`defer_interrupts`, and only its
long waits run within :func:`allow_interrupts`.

A handler of another signal may raise any exception, such as the ``TimeoutError`` of a program that
limits the time of a call by ``signal.alarm``. Steps of a start catch such exceptions as their own
failures. Within :func:`carry_handler_errors` they are carried in a ``BaseException``.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from hyperplane.clusters.engine import ClientType, ClusterType, StartedCluster

#: Number of Ctrl-C presses after which a deferred interrupt is delivered at once.
MAX_DEFERRED = 3


class _DeferredInterrupts:
    """A SIGINT handler that counts interrupts and delivers them later to the previous handler."""

    def __init__(self, handler: Callable[[int, FrameType | None], object]) -> None:
        self.handler = handler
        self.pending = 0
        #: Whether interrupts are delivered at once. A flag, because an interrupt could arrive
        #: between two calls that exchange the handlers.
        self.passes_through = False

    def record(self, number: int, frame: FrameType | None) -> None:
        self.pending += 1
        if self.passes_through or self.pending >= MAX_DEFERRED:
            self.deliver(frame)

    def deliver(self, frame: FrameType | None = None) -> None:
        """Call the previous handler if an interrupt is pending."""
        if self.pending:
            self.pending = 0
            self.handler(signal.SIGINT, frame)


#: The handler in force. There is one only, because signals interrupt only the main thread.
_active: _DeferredInterrupts | None = None


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block, or to the next :func:`allow_interrupts` in it."""
    global _active
    handler = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not callable(handler) or _active is not None:
        yield
        return
    active = _DeferredInterrupts(handler)
    try:
        _active = active
        signal.signal(signal.SIGINT, active.record)
        yield
    finally:
        _active = None
        signal.signal(signal.SIGINT, handler)
        active.deliver()


@contextmanager
def allow_interrupts() -> Iterator[None]:
    """Let Ctrl-C interrupt a long-running block inside :func:`defer_interrupts`."""
    active = _active
    if active is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = active.passes_through
    try:
        active.passes_through = True
        active.deliver()
        yield
    finally:
        active.passes_through = before


class _HandlerError(BaseException):
    """Carrier of an exception that a signal handler of the program has raised."""

    def __init__(self, error: Exception) -> None:
        super().__init__(repr(error))
        self.error = error


#: Whether this process is within :func:`carry_handler_errors`.
_carries = False


@contextmanager
def carry_handler_errors() -> Iterator[None]:
    """Let an exception of a signal handler leave the block unchanged, caught by nothing in it."""
    global _carries
    if threading.current_thread() is not threading.main_thread() or _carries:
        yield
        return
    replaced: dict[int, tuple[Any, Any]] = {}
    try:
        _carries = True
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            if callable(handler) and handler is not signal.default_int_handler:
                replaced[number] = handler, _carry_errors(handler)
                signal.signal(number, replaced[number][1])
        yield
    except _HandlerError as carrier:
        raise carrier.error from carrier.error.__cause__
    finally:
        _carries = False
        for changed, (handler, carrying) in replaced.items():
            if signal.getsignal(changed) is carrying:  # not if the program has set another one
                signal.signal(changed, handler)


def _carry_errors(handler: Callable[[int, FrameType | None], object]) -> Any:
    def carry(number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except Exception as error:  # noqa: BLE001 - it is raised again at the end of the block
            raise _HandlerError(error) from None

    return carry


def complete_start(
    begin: Callable[[], StartedCluster[ClientType, ClusterType]],
    *steps: Callable[[StartedCluster[ClientType, ClusterType]], object],
) -> StartedCluster[ClientType, ClusterType]:
    """Start a cluster and run further steps; close it if a step fails or Ctrl-C arrives.

    Ctrl-C is deferred to the end except where an engine allows the interruption, because a caller
    that was interrupted would have no cluster object to close.
    """
    started: StartedCluster[ClientType, ClusterType] | None = None
    try:
        # Within the try, because Ctrl-C may arrive at the end of the block, too.
        with carry_handler_errors(), defer_interrupts():
            started = begin()
            for step in steps:
                step(started)
        return started
    except BaseException:
        if started is not None:
            with defer_interrupts():
                _close(started)
        raise


def _close(started: StartedCluster[Any, Any]) -> None:
    try:
        started.client.close()
    finally:
        started.cluster.close()
