"""Show the progress of calls that wait for a cluster, in a notebook or on a terminal.

The scheduler sends figures twice a second (:mod:`hyperplane.guard.compute_progress`). They are
shown only while the main thread waits in a call of the client, such as ``compute`` or ``gather``.
"""

from __future__ import annotations

import contextvars
import html
import shutil
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Protocol

from hyperplane.clusters.dask.progress_texts import ComputeFigures
from hyperplane.core.progress import has_open_bar
from hyperplane.guard.compute_progress import TOPIC, client_topic

if TYPE_CHECKING:
    from distributed import Client


class ProgressOutput(Protocol):
    """Place where progress is shown."""

    def show(self, figures: ComputeFigures, seconds: float) -> None:
        """Show the figures of a call that has waited for some seconds."""

    def end(self, text: str) -> None:
        """Replace the figures when the call ends."""


class NotebookOutput:
    """Output of the cell that runs; the computations of one cell share it."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._handle: Any = None
        self._cell = -1

    def show(self, figures: ComputeFigures, seconds: float) -> None:
        """Show bars."""
        self._update(figures.as_line(seconds, 200), figures.as_html(seconds))

    def end(self, text: str) -> None:
        """Leave one line."""
        self._update(text, f"<small>{html.escape(text)}</small>")

    def _update(self, plain: str, markup: str) -> None:
        from IPython.display import display

        data = {"text/plain": plain, "text/html": markup}
        cell = self._shell.execution_count
        if self._handle is None or cell != self._cell:
            self._cell = cell
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


class TerminalOutput:
    """The last line of a terminal."""

    def show(self, figures: ComputeFigures, seconds: float) -> None:
        """Replace the line."""
        width = shutil.get_terminal_size().columns - 1
        self._write(figures.as_line(seconds, width))

    def end(self, text: str) -> None:
        """Clear the line."""
        del text
        self._write("")

    def _write(self, line: str) -> None:
        sys.stderr.write(f"\r\x1b[2K{line}")
        sys.stderr.flush()


def find_output() -> ProgressOutput | None:
    """Return where this process shows progress; None if it would not be seen."""
    if "ipykernel" in sys.modules:
        from IPython import get_ipython

        shell = get_ipython()
        if getattr(shell, "kernel", None) is not None:
            return NotebookOutput(shell)
    return TerminalOutput() if sys.stderr is not None and sys.stderr.isatty() else None


class ComputeDisplay:
    """Progress of the calls of one client that wait.

    Parameters
    ----------
    output : ProgressOutput
        Where it is shown.
    delay : float
        Seconds that a call waits before its progress appears.
    """

    def __init__(self, output: ProgressOutput, delay: float) -> None:
        self._output, self._delay = output, delay
        self._lock = threading.Lock()
        self._depth = 0
        self._began = 0.0
        #: ipykernel finds in it the cell to which an output belongs.
        self._context = contextvars.copy_context()
        self._shown: ComputeFigures | None = None

    def begin(self) -> None:
        """Note that the main thread waits."""
        with self._lock:
            if not self._depth:
                self._began, self._context = time.monotonic(), contextvars.copy_context()
            self._depth += 1

    def end(self, error: BaseException | None) -> None:
        """Note that the call has ended, with its error if it has failed."""
        with self._lock:
            self._depth -= 1
            if self._depth or self._shown is None:
                return
            shown, self._shown = self._shown, None
            self._output.end(shown.describe_end(time.monotonic() - self._began, error))

    def on_message(self, event: tuple[float, dict[str, Any]]) -> None:
        """Show figures of the scheduler; an event handler of the client."""
        with self._lock:
            seconds = time.monotonic() - self._began
            if not self._depth or seconds < self._delay or has_open_bar():
                return
            self._shown = ComputeFigures.of_message(event[1])
            self._context.run(self._output.show, self._shown, seconds)


def show_progress_of(client: Client, delay: float | None) -> None:
    """Show the progress of calls of a client that wait, if it can be seen.

    ``delay`` is the setting ``hyperplane.progress.delay`` in seconds; None for no progress.
    """
    output = None if delay is None else find_output()
    if output is None or delay is None or client.asynchronous:
        return
    display = ComputeDisplay(output, delay)
    client.subscribe_topic(client_topic(client.id), display.on_message)
    client.log_event(TOPIC, {"client": client.id})
    # A bound method would be a reference cycle; a client is closed when its last reference goes.
    reference = weakref.ref(client)

    def sync(func: Any, *args: Any, **kwargs: Any) -> Any:
        this: Any = reference()
        call = type(this).sync
        if threading.current_thread() is not threading.main_thread() or this.asynchronous:
            return call(this, func, *args, **kwargs)
        display.begin()
        try:
            result = call(this, func, *args, **kwargs)
        except BaseException as error:
            display.end(error)
            raise
        display.end(None)
        return result

    vars(client)["sync"] = sync
