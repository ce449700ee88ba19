"""Show what a call waits for, for as long as it waits.

A separate thread writes: a call that is blocked in a library still has its time counted, and a
terminal that takes no output does not stop the call.
"""

from __future__ import annotations

import contextvars
import html
import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hyperplane.core.progress import hide_other_progress
from hyperplane.core.progress_output import (
    LOG_FACTOR,
    NotebookOutput,
    PlainOutput,
    ProgressOutput,
    find_output,
    is_terminal,
)
from hyperplane.core.units import format_duration

logger = logging.getLogger(__name__)

#: Seconds between two updates.
INTERVAL = 0.5
#: Seconds that the end of a call waits for an output that is being written.
_END_SECONDS = 1.0
#: Characters of the bar on a terminal.
_BAR_WIDTH = 12


@dataclass(frozen=True)
class WaitStatus:
    """What a call waits for.

    Parameters
    ----------
    subject : str
        What it waits for as a whole, such as ``"job nightly #12"``.
    unit : str
        What is counted, such as ``"steps done"``; empty if nothing is.
    done, total : int
        How many there are, and how many it waits for.
    detail : str
        What happens now.
    """

    subject: str
    unit: str = ""
    done: int = 0
    total: int = 0
    detail: str = ""

    def as_line(self, seconds: float, width: int) -> str:
        """Return one line, cut to a width; the bar is left out if the rest needs its place.

        Examples
        --------
        >>> status = WaitStatus("job nightly #12", "steps done", 2, 5, "transform runs")
        >>> status.as_line(35.0, 80)
        '[####--------] job nightly #12: 2 of 5 steps done, 35 s; transform runs'
        """
        bar = ""
        if self.total:
            full = _BAR_WIDTH * min(self.done, self.total) // self.total
            bar = f"[{'#' * full}{'-' * (_BAR_WIDTH - full)}] "
        text = self._describe(seconds)
        return (bar + text if len(bar + text) <= width else text)[:width]

    def as_html(self, seconds: float) -> str:
        """Return the same with a bar for a notebook."""
        bar = ""
        if self.total:
            bar = f"<progress value='{self.done}' max='{self.total}' style='width:16em'></progress>"
        return f"<small>{bar} {html.escape(self._describe(seconds))}</small>"

    def _describe(self, seconds: float) -> str:
        counted = f"{self.done} of {self.total} {self.unit}, " if self.total else ""
        detail = f"; {self.detail}" if self.detail else ""
        text = f"{self.subject}: {counted}{format_duration(seconds)}{detail}"
        # Without what a terminal would interpret: names and messages are of others.
        return "".join(each for each in text if each.isprintable())


class WaitDisplay:
    """Display of one call that waits.

    Parameters
    ----------
    output : ProgressOutput
        Where it is shown.
    delay : float
        Seconds after which it appears.
    status : WaitStatus
        What the call waits for at first.
    """

    def __init__(self, output: ProgressOutput, delay: float, status: WaitStatus) -> None:
        self._output, self._delay = output, delay
        self.status = status
        #: What the line says that remains in a notebook and in logs; none if it is empty.
        self.outcome = "done"
        #: The same after an error; by default that the call has failed or was interrupted.
        self.error_outcome: str | None = None
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._drawing = threading.Lock()
        self._is_shown = False
        self._last_text = ""
        # ipykernel finds in it the cell to which an output belongs.
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._draw_repeatedly,), name="hyperplane-wait", daemon=True
        )

    def start(self) -> None:
        """Start the thread that writes; without one nothing is shown."""
        try:
            self._thread.start()
        except RuntimeError as failure:  # a limit of threads, or the exit of the program
            logger.debug("progress is not shown: %s", failure)

    def _draw_repeatedly(self) -> None:
        wait = self._delay
        while not self._ended.wait(wait):
            wait = INTERVAL
            with self._drawing:
                if self._ended.is_set():
                    return
                self._is_shown = True  # before, as a part may be visible when drawing fails
                try:
                    self._output.show(self.status, time.monotonic() - self._began)
                except Exception as failure:  # noqa: BLE001 - a terminal may have been closed
                    logger.debug("progress is no longer shown: %s", failure)
                    return
                if self._ended.is_set():  # the call may no longer wait for this output
                    self._replace_last()

    def end(self, outcome: str) -> None:
        """Remove what was shown, or leave a line with the outcome, such as ``"done"``."""
        if not outcome and isinstance(self._output, NotebookOutput):
            outcome = "done"  # an output of a cell cannot be removed, and would be empty
        took = format_duration(time.monotonic() - self._began)
        self._last_text = f"{self.status.subject}: {outcome} after {took}" if outcome else ""
        self._ended.set()
        if self._drawing.acquire(timeout=_END_SECONDS):
            try:
                self._replace_last()
            finally:
                self._drawing.release()

    def _replace_last(self) -> None:
        """Replace what is shown by the last text, once; the caller has the lock."""
        if not self._is_shown:
            return
        self._is_shown = False
        try:
            self._output.end(self._last_text)
        except Exception as failure:  # noqa: BLE001 - the call has its own result or error
            logger.debug("the end of a progress is not shown: %s", failure)


@contextmanager
def show_wait(
    status: WaitStatus, delay: float | None, log_lines: bool = True
) -> Iterator[WaitDisplay | None]:
    """Show what the block waits for; yield the display, whose ``status`` the block can set.

    Parameters
    ----------
    status : WaitStatus
        What it waits for at first.
    delay : float or None
        Seconds after which it is shown; None for never. Only the main thread shows anything, and
        only if standard error is open and can tell whether it is a terminal.
    log_lines : bool
        Whether it is shown where standard error is neither a terminal nor a notebook.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if delay is None or not is_main or is_terminal(sys.stderr) is None:
        yield None
        return
    output = find_output()
    if output is None and not log_lines:
        yield None
        return
    display = (
        WaitDisplay(PlainOutput(sys.stderr), LOG_FACTOR * delay, status)
        if output is None
        else WaitDisplay(output, delay, status)
    )
    with hide_other_progress(display):
        try:
            display.start()
            yield display
        except BaseException as error:
            outcome = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            display.end(outcome if display.error_outcome is None else display.error_outcome)
            raise
        display.end(display.outcome)
