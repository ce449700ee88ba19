"""Source line of an awaited call, for warnings and errors of work done in a thread.

The coroutines of the notebook API do their work in a thread, whose stack does not contain the
caller: a warning with a stack level would name ``concurrent/futures/thread.py``.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from types import FrameType, TracebackType
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

from hyperplane.core.errors import HyperplaneError
from hyperplane.core.public_calls import check_names, warn_caller

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

#: Packages of the event loop and the thread pool, whose frames are removed from tracebacks.
_EVENT_LOOP_PACKAGES = ("asyncio", "concurrent")


class CallSite(NamedTuple):
    """A line of a program, as ``warnings.warn_explicit`` takes it."""

    filename: str
    line: int
    module: str
    registry: dict[Any, Any]

    @classmethod
    def from_frame(cls, frame: FrameType) -> CallSite:
        """Return the line that a frame is executing."""
        names = frame.f_globals
        registry = names.setdefault("__warningregistry__", {})
        module = str(names.get("__name__") or "<unknown>")
        return cls(frame.f_code.co_filename, frame.f_lineno, module, registry)


_site: ContextVar[CallSite | None] = ContextVar("hyperplane_call_site", default=None)


def warn(message: str) -> None:
    """Warn at the line of the awaited call, or of the first caller outside this package."""
    site = _site.get()
    if site is None:
        warn_caller(message)
    else:
        warnings.warn_explicit(
            message, UserWarning, site.filename, site.line, site.module, site.registry
        )


def attribute_to_caller(
    function: Callable[Parameters, Coroutine[Any, Any, Result]],
) -> Callable[Parameters, Coroutine[Any, Any, Result]]:
    """Make warnings and errors of a coroutine function name the line that called it.

    The line is taken when the function is called, not when the coroutine runs: ``asyncio.gather``
    and tasks run it from the event loop.
    """
    names = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def wrapper(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Coroutine[Any, Any, Result]:
        check_names(kwargs, names, function.__name__)
        site = CallSite.from_frame(sys._getframe(1))
        coroutine: Any = _run_at_site(site, functools.partial(function, *args, **kwargs))
        coroutine.__qualname__ = coroutine.__name__ = function.__name__  # for "was never awaited"
        return cast("Coroutine[Any, Any, Result]", coroutine)

    return wrapper


async def _run_at_site(site: CallSite, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    token = _site.set(site)
    try:
        return await work()
    except HyperplaneError as error:
        raise error.with_traceback(_drop_event_loop(error.__traceback__))  # noqa: B904 - the same error
    finally:
        # An unfinished coroutine may be closed in another context.
        with contextlib.suppress(ValueError):
            _site.reset(token)


def _drop_event_loop(traceback: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the frames of the event loop and the thread pool."""
    if traceback is None:
        return None
    rest = _drop_event_loop(traceback.tb_next)
    package = str(traceback.tb_frame.f_globals.get("__name__")).partition(".")[0]
    if package in _EVENT_LOOP_PACKAGES or traceback.tb_frame.f_code is _run_at_site.__code__:
        return rest
    return TracebackType(rest, traceback.tb_frame, traceback.tb_lasti, traceback.tb_lineno)
