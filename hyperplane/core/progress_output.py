"""Places where the progress of a call that waits is shown: a notebook, a terminal, plain lines."""

from __future__ import annotations

import html
import os
import sys
import time
from typing import Any, Protocol, TextIO

from hyperplane.core.notebook_output import CellOutput, find_kernel_shell

#: Longest plain line, and one in the text of a notebook's output.
_LINE_WIDTH = 200
#: Seconds between two plain lines: least, and most while nothing changes.
_LEAST_PAUSE, _MOST_PAUSE = 2.0, 300.0
#: Without a terminal progress begins this many times later: lines of a log remain.
LOG_FACTOR = 5.0
#: Seconds of a computation at which it writes its second and third line to a log; after that
#: seconds between two lines, at least, and their share of the time until then.
_LOG_TIMES, _LOG_PAUSE, _LOG_SHARE = (30.0, 60.0), 60.0, 0.05


class Figures(Protocol):
    """What is known of the progress of a call."""

    def as_line(self, seconds: float, width: int) -> str:
        """Return one line for a call that has waited for some seconds."""

    def as_html(self, seconds: float) -> str:
        """Return the same as HTML."""


class LoggedFigures(Protocol):
    """Figures that a log can have, too."""

    def as_text(self, seconds: float, width: int) -> str:
        """Return one line without a bar."""


class ProgressOutput(Protocol):
    """Place where progress is shown."""

    #: Whether the end of a call remains visible.
    keeps_end: bool

    def show(self, figures: Any, seconds: float) -> None:
        """Show the figures of a call that has waited for some seconds."""

    def end(self, text: str) -> None:
        """Replace the figures when the call ends."""


class NotebookOutput:
    """Output of the cell that runs; the computations of one cell share it."""

    keeps_end = True

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._output = CellOutput()
        self._cell = -1

    def show(self, figures: Figures, seconds: float) -> None:
        """Show bars."""
        self._update(figures.as_line(seconds, _LINE_WIDTH), figures.as_html(seconds))

    def end(self, text: str) -> None:
        """Leave one line."""
        self._update(text, f"<small>{html.escape(text)}</small>")

    def _update(self, plain: str, markup: str) -> None:
        cell = self._shell.execution_count
        if cell != self._cell:
            self._cell, self._output = cell, CellOutput()
        self._output.show(plain, markup)


class TerminalOutput:
    """The last line of a terminal, which is the standard error of the program."""

    keeps_end = False

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, figures: Figures, seconds: float) -> None:
        """Replace the line, unless the program writes its errors elsewhere meanwhile."""
        if sys.stderr is self._stream:
            width = os.get_terminal_size(self._stream.fileno()).columns or 80
            self._write(figures.as_line(seconds, width - 1))

    def end(self, text: str) -> None:
        """Clear the line."""
        del text
        self._write("")

    def _write(self, line: str) -> None:
        self._stream.write(f"\r\x1b[2K{line}")
        self._stream.flush()


class PlainOutput:
    """Lines of the standard error of a program: one when something has changed."""

    keeps_end = True

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = ""
        self._next = 0.0

    def show(self, figures: Figures, seconds: float) -> None:
        """Write a line if the figures have changed, or after some minutes."""
        now = time.monotonic()
        state = figures.as_line(0.0, _LINE_WIDTH)
        if now < self._next or (state == self._shown and now < self._next + _MOST_PAUSE):
            return
        self._shown, self._next = state, now + _LEAST_PAUSE
        self.end(figures.as_line(seconds, _LINE_WIDTH))

    def end(self, text: str) -> None:
        """Write a line, unless the text is empty."""
        if text:
            self._stream.write(f"{time.strftime('%H:%M:%S')} {text}\n")
            self._stream.flush()


class LogOutput:
    """Lines of the standard error of a program: few, at times that become rarer."""

    keeps_end = True

    def __init__(self) -> None:
        self._last = self._next = 0.0

    def show(self, figures: LoggedFigures, seconds: float) -> None:
        """Write the first line of a call, and further ones when it is time."""
        if seconds < self._last:  # another call
            self._next = 0.0
        self._last = seconds
        if seconds >= self._next:
            pause = max(_LOG_PAUSE, _LOG_SHARE * seconds)
            self._next = next((each for each in _LOG_TIMES if each > seconds), seconds + pause)
            self.end(figures.as_text(seconds, _LINE_WIDTH))

    def end(self, text: str) -> None:
        """Write a line."""
        if sys.stderr is not None:  # that of now: a program may have redirected it
            PlainOutput(sys.stderr).end(text)


def find_output() -> ProgressOutput | None:
    """Return where this process shows progress in place; None if it would not be seen."""
    shell = find_kernel_shell()
    if shell is not None:
        return NotebookOutput(shell)
    return TerminalOutput(sys.stderr) if is_terminal(sys.stderr) else None


def is_terminal(stream: Any) -> bool | None:
    """Return whether a stream is a terminal; None if it is closed, missing or cannot tell."""
    try:
        return bool(stream.isatty())
    except Exception:  # noqa: BLE001 - None, a closed file, or any object of the program
        return None
