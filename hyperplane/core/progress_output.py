"""Places where the progress of a call that waits is shown: a notebook, a terminal, plain lines."""

from __future__ import annotations

import html
import os
import sys
import time
from typing import Any, Protocol, TextIO

#: Longest plain line, and one in the text of a notebook's output.
_LINE_WIDTH = 200
#: Seconds between two plain lines: least, and most while nothing changes.
_LEAST_PAUSE, _MOST_PAUSE = 2.0, 300.0


class Figures(Protocol):
    """What is known of the progress of a call."""

    def as_line(self, seconds: float, width: int) -> str:
        """Return one line for a call that has waited for some seconds."""

    def as_html(self, seconds: float) -> str:
        """Return the same as HTML."""


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
        self._handle: Any = None
        self._cell = -1

    def show(self, figures: Figures, seconds: float) -> None:
        """Show bars."""
        self._update(figures.as_line(seconds, _LINE_WIDTH), figures.as_html(seconds))

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


def find_output() -> ProgressOutput | None:
    """Return where this process shows progress in place; None if it would not be seen."""
    if "ipykernel" in sys.modules:
        from IPython import get_ipython

        shell = get_ipython()
        if getattr(shell, "kernel", None) is not None:
            return NotebookOutput(shell)
    return TerminalOutput(sys.stderr) if is_terminal(sys.stderr) else None


def is_terminal(stream: Any) -> bool | None:
    """Return whether a stream is a terminal; None if it is closed, missing or cannot tell."""
    try:
        return bool(stream.isatty())
    except Exception:  # noqa: BLE001 - None, a closed file, or any object of the program
        return None
