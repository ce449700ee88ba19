"""Show the progress of calls that wait for a cluster, in a notebook, on a terminal or in a log.

The scheduler sends figures twice a second (:mod:`hyperplane.guard.compute_progress`). They are
shown only while the main thread waits in a call of the client, such as ``compute`` or ``gather``.
A separate thread writes them: a terminal that takes no output must not stop the event loop, which
is that of the scheduler of a local cluster.
"""

from __future__ import annotations

import contextvars
import logging
import os
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from hyperplane.clusters.dask.progress_texts import ComputeFigures
from hyperplane.core.progress import has_open_bar
from hyperplane.core.progress_output import (
    LOG_FACTOR,
    LogOutput,
    ProgressOutput,
    find_output,
    is_terminal,
)
from hyperplane.guard.compute_progress import HANDLER, TOPIC, client_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed import Client

logger = logging.getLogger(__name__)

#: Seconds that the end of a call waits for an output that is being written, and for its figures.
_END_SECONDS = 1.0


class ComputeDisplay:
    """Progress of the calls of one client that wait.

    Parameters
    ----------
    output : ProgressOutput
        Where it is shown.
    delay : float
        Seconds that a call waits before its progress appears.
    count : callable
        Returns the numbers of tasks that have ended and that have not; None if they are unknown.
    """

    def __init__(
        self, output: ProgressOutput, delay: float, count: Callable[[], tuple[int, int] | None]
    ) -> None:
        self._output, self._delay, self._count = output, delay, count
        #: Number of calls within each other; changed by the main thread only.
        self.depth = 0
        self._began = 0.0
        #: ipykernel finds in it the cell to which an output belongs.
        self._context = contextvars.copy_context()
        self._newest: ComputeFigures | None = None
        self._shown: ComputeFigures | None = None
        self._drawing = threading.Lock()
        self._news = threading.Event()
        self._has_failed = False
        self._writer: threading.Thread | None = None

    def begin(self) -> None:
        """Note that the main thread waits."""
        if not self.depth:
            self._newest = self._shown = None
            self._began, self._context = time.monotonic(), contextvars.copy_context()
        self.depth += 1

    def end(self, depth: int, error: BaseException | None) -> None:
        """Note that a call has ended, with its error if it has failed.

        ``depth`` is the depth before the call: a second Ctrl-C may have interrupted ``begin``.
        """
        self.depth = depth
        seconds = time.monotonic() - self._began
        # The other thread may be drawing for the first time, and note it only afterwards.
        if depth or self._has_failed or not self._drawing.acquire(timeout=_END_SECONDS):
            return
        try:
            shown, self._newest, self._shown = self._shown, None, None
            if shown is not None:
                self._output.end(self._describe_end(shown, seconds, error))
        except Exception as failure:  # noqa: BLE001 - the call has its own result or error
            self._turn_off(failure)
        finally:
            self._drawing.release()

    def _describe_end(
        self, shown: ComputeFigures, seconds: float, error: BaseException | None
    ) -> str:
        if not self._output.keeps_end:
            return ""
        counted = self._count() if error is None else None
        return shown.describe_end(seconds, error, counted)

    def on_message(self, event: tuple[float, dict[str, Any]]) -> None:
        """Let the other thread show figures of the scheduler; an event handler of the client."""
        is_early = time.monotonic() - self._began < self._delay
        if not self.depth or is_early or self._has_failed or has_open_bar():
            return
        self._newest = ComputeFigures.of_message(event[1])
        if self._writer is None:
            self._writer = threading.Thread(
                target=_write_news, args=(weakref.ref(self), self._news), daemon=True,
                name="hyperplane-progress",
            )  # fmt: skip
            try:
                self._writer.start()
            except RuntimeError as failure:  # a limit of threads, or the exit of the program
                self._turn_off(failure)
        self._news.set()

    def draw(self) -> None:
        """Show the newest figures, unless their call has ended."""
        with self._drawing:
            figures, self._newest = self._newest, None
            if figures is None or not self.depth or self._has_failed:
                return
            try:
                self._context.run(self._output.show, figures, time.monotonic() - self._began)
            except Exception as failure:  # noqa: BLE001 - a terminal may have been closed
                self._turn_off(failure)
            else:
                self._shown = figures

    def _turn_off(self, failure: Exception) -> None:
        self._has_failed = True
        logger.debug("progress is no longer shown: %s", failure)


def _write_news(reference: weakref.ref[ComputeDisplay], news: threading.Event) -> None:
    """Draw what arrives, as long as the display exists; the target of a thread."""
    while True:
        is_new = news.wait(timeout=10)
        news.clear()
        display = reference()
        if display is None:
            return
        if is_new:
            display.draw()
        del display


def show_progress_of(client: Client, delay: float | None, log_lines: bool = True) -> None:
    """Show the progress of calls of a client that wait, if it can be seen.

    ``delay`` is the setting ``hyperplane.progress.delay`` in seconds, None for no progress, and
    ``log_lines`` the one of this name.
    """
    output = None if delay is None else find_output()
    if output is None and delay is not None and log_lines and is_terminal(sys.stderr) is False:
        output, delay = LogOutput(), LOG_FACTOR * delay
    if output is None or delay is None or client.asynchronous:
        return
    # A bound method would be a reference cycle; a client is closed when its last reference goes.
    reference = weakref.ref(client)
    process = os.getpid()

    def count() -> tuple[int, int] | None:
        this: Any = reference()
        try:
            ask = getattr(this.scheduler, HANDLER)
            found = type(this).sync(this, ask, client=this.id, callback_timeout=_END_SECONDS)
            return found["done"], found["active"]
        except Exception:  # noqa: BLE001 - the scheduler may have ended, or be of another version
            return None

    display = ComputeDisplay(output, delay, count)
    try:
        client.subscribe_topic(client_topic(client.id), display.on_message)
        client.log_event(TOPIC, {"client": client.id})
    except Exception as error:  # noqa: BLE001 - the cluster works without
        logger.debug("progress is not shown: %s", error)
        return

    def sync(func: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True  # IPython and pytest do not show this frame
        this: Any = reference()
        call = type(this).sync
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or os.getpid() != process or this.asynchronous:
            return call(this, func, *args, **kwargs)
        depth = display.depth
        try:
            display.begin()
            result = call(this, func, *args, **kwargs)
        except BaseException as error:
            display.end(depth, error)
            raise
        display.end(depth, None)
        return result

    vars(client)["sync"] = sync
