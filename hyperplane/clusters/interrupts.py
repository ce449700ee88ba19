"""Defer Ctrl-C in a start, and pass on what other signal handlers of the program raise in it.

Python raises ``KeyboardInterrupt`` between any two instructions of the main thread, for example
after a folder is created and before its name is stored, or after a cluster runs and before its
object is returned. Every cluster therefore starts within :func:`defer_interrupts`, and only its
long waits run within :func:`allow_interrupts`.

A handler of another signal may raise any exception, such as the ``TimeoutError`` of a program that
limits the time of a call by ``signal.alarm``. Steps of a start catch such exceptions as their own
failures. Within :func:`carry_handler_errors` they are carried in a ``BaseException``. Python cannot
read what ``signal.siginterrupt`` has set; after a start all signals with handlers interrupt system
calls, as when their handlers were set.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from hyperplane.clusters.engine import ClientType, ClusterType, StartedCluster

#: Number of Ctrl-C presses after which a deferred interrupt is delivered at once.
MAX_DEFERRED = 3


_P = ParamSpec("_P")
_T = TypeVar("_T")
_Handler = Callable[[int, FrameType | None], object]


class _DeferredInterrupts:
    """A SIGINT handler that counts interrupts and delivers them later to the previous handler."""

    def __init__(self, handler: _Handler) -> None:
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
        _end_deferral(active)
        active.deliver()


def _end_deferral(active: _DeferredInterrupts) -> None:
    global _active
    signal.signal(signal.SIGINT, active.handler)
    _active = None  # last: a signal may interrupt this, and the end of a start repeats it


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


class _CarryingHandler:
    """Handler of a signal that carries what another one raises, until its block has ended.

    A library that sets its own handler within the block may call this one later.
    """

    def __init__(self, handler: _Handler, block: _HandlerBlock) -> None:
        self.handler, self.block = handler, block

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self.block.is_open:
            self.handler(number, frame)
            return
        try:
            self.handler(number, frame)
        except Exception as error:  # noqa: BLE001 - it is raised again at the end of the block
            raise _HandlerError(error) from None


def _without_carrier(handler: Any) -> Any:
    """Return a handler of the program, also after an earlier block whose end was interrupted."""
    return handler.handler if isinstance(handler, _CarryingHandler) else handler


class _HandlerBlock:
    """The handlers of a block of :func:`carry_handler_errors`."""

    def __init__(self) -> None:
        self.is_open, self._outer = True, _active
        self.replaced: dict[int, _CarryingHandler] = {}

    def replace_handlers(self) -> None:
        for number in signal.valid_signals():
            handler = _without_carrier(signal.getsignal(number))
            if callable(handler) and handler is not signal.default_int_handler:
                self.replaced[number] = _CarryingHandler(handler, self)
                signal.signal(number, self.replaced[number])

    def end(self) -> None:
        """Set the previous handlers again; may be repeated after a signal has interrupted it."""
        global _block
        self.is_open, _block = False, None
        if _active is not None and _active is not self._outer:
            _end_deferral(_active)
        for number, carrying in self.replaced.items():
            previous = carrying.handler
            if signal.getsignal(number) is carrying:  # not if the program has set another one
                signal.signal(number, previous)


#: The block of :func:`carry_handler_errors` that runs.
_block: _HandlerBlock | None = None


def carry_handler_errors(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Let an exception of a signal handler leave a function unchanged, caught by nothing in it.

    This is no context manager, as a signal could arrive between its end and that of the block.
    """

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        global _block
        if threading.current_thread() is not threading.main_thread() or _block is not None:
            return function(*args, **kwargs)
        block = _HandlerBlock()
        try:
            try:
                _block = block
                block.replace_handlers()
                return function(*args, **kwargs)
            finally:
                block.end()
        except _HandlerError as carrier:
            block.end()  # a signal may have interrupted it
            context = carrier.error.__context__
            try:
                raise carrier.error
            finally:
                carrier.error.__context__ = context  # the statement has set the carrier

    return call


def complete_start(
    begin: Callable[[], StartedCluster[ClientType, ClusterType]],
    *steps: Callable[[StartedCluster[ClientType, ClusterType]], object],
) -> StartedCluster[ClientType, ClusterType]:
    """Start a cluster and run further steps; close it if a step fails or Ctrl-C arrives.

    Ctrl-C is deferred to the end except where an engine allows the interruption, because a caller
    that was interrupted would have no cluster object to close.
    """
    started: StartedCluster[ClientType, ClusterType] | None = None

    @carry_handler_errors
    def run() -> StartedCluster[ClientType, ClusterType]:
        nonlocal started
        with defer_interrupts():
            started = begin()
            for step in steps:
                step(started)
        return started

    try:
        # Within the try, because Ctrl-C may arrive at the end of the call, too.
        return run()
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
