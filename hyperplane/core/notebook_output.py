"""Outputs of a notebook's cells that are replaced when something changes, and notes in them.

Jupyter shows all text on standard error as an error, in a red box. Notes about a cluster or a job
are no errors, so in a notebook they are a plain output of their cell.
"""

from __future__ import annotations

import html
import logging
import os
import sys
import threading
from collections.abc import Mapping
from typing import Any

logger = logging.getLogger(__name__)

#: Metadata of an output that has notes.
NOTE_METADATA = {"hyperplane": "note"}
#: Most notes in one output, the newest ones, and most characters of one.
_MAX_NOTES, _MAX_LENGTH = 30, 1000

#: Reentrant: the garbage collector can close a cluster, which has a note, at any line.
_lock = threading.RLock()


def find_kernel_shell() -> Any:
    """Return the shell of the kernel in which this process runs; None outside notebooks."""
    if "ipykernel" not in sys.modules or "IPython" not in sys.modules:
        return None
    shell = sys.modules["IPython"].get_ipython()
    return shell if getattr(shell, "kernel", None) is not None else None


def find_cell_id(shell: Any) -> str:
    """Return the id of the cell that runs; empty if the front end has not sent it."""
    try:
        return str(shell.get_parent()["metadata"]["cellId"])
    except Exception:  # noqa: BLE001 - another kernel, or a message without an id
        return ""


class CellOutput:
    """One output of the cell that runs when it is first shown.

    Parameters
    ----------
    metadata : mapping
        Metadata of the output in the file of the notebook.
    """

    def __init__(self, metadata: Mapping[str, Any] | None = None) -> None:
        self._options: dict[str, Any] = {"raw": True}
        if metadata:
            self._options["metadata"] = dict(metadata)
        self._handle: Any = None

    def show(self, plain: str, markup: str) -> None:
        """Show or replace the output, as text and as HTML."""
        from IPython.display import display

        data = {"text/plain": plain, "text/html": markup}
        if self._handle is None:
            self._handle = display(data, display_id=True, **self._options)
        else:
            self._handle.update(data, **self._options)


class CellNotes:
    """Notes that share one output of a cell.

    Parameters
    ----------
    process, cell : int
        Process and number of the cell.
    """

    def __init__(self, process: int, cell: int) -> None:
        self.place = process, cell
        self._output = CellOutput(NOTE_METADATA)
        self._lines: list[str] = []
        self._count = 0

    def add(self, text: str) -> None:
        """Show one more note."""
        self._lines = [*self._lines, _shorten(text)][-_MAX_NOTES:]
        self._count += 1
        hidden = self._count - len(self._lines)
        lines = ([f"{hidden:,} earlier notes"] if hidden else []) + self._lines
        plain = "\n".join(lines)
        style = "white-space:pre-wrap;font-size:small;opacity:.8"
        self._output.show(plain, f'<div style="{style}">{html.escape(plain)}</div>')


_notes: CellNotes | None = None


def show_note(text: str) -> bool:
    """Show a note in the output of the cell that runs; return False outside notebooks."""
    global _notes
    shell = find_kernel_shell()
    if shell is None:
        return False
    try:
        with _lock:
            place = os.getpid(), int(shell.execution_count)
            if _notes is None or _notes.place != place:
                _notes = CellNotes(*place)
            _notes.add(text)
    except Exception as failure:  # noqa: BLE001 - a kernel that ends; standard error remains
        logger.debug("a note is not shown: %s", failure)
        return False
    return True


def _shorten(text: str) -> str:
    """Return a text without control characters, cut to the most characters of a note."""
    plain = "".join(each for each in text.rstrip() if each.isprintable() or each == "\n")
    return plain if len(plain) <= _MAX_LENGTH else f"{plain[: _MAX_LENGTH - 1]}…"


class NoteHandler(logging.Handler):
    """Handler that shows the warnings of a logger as notes, where nothing else handles them.

    Outside notebooks, and if the program has configured no logging, it writes to standard error as
    Python does without a handler.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record, unless the program has a handler that gets it, too."""
        if _has_other_handler(record.name, self):
            return
        try:
            is_shown = show_note(self.format(record))
        except Exception:  # noqa: BLE001 - as all handlers of logging
            self.handleError(record)
            return
        if not is_shown and logging.lastResort is not None:
            logging.lastResort.handle(record)


def _has_other_handler(name: str, handler: logging.Handler) -> bool:
    """Return whether records of a logger reach a handler besides this one."""
    current: logging.Logger | None = logging.getLogger(name)
    while current is not None:
        if any(each is not handler for each in current.handlers):
            return True
        current = current.parent if current.propagate else None
    return False


def show_warnings_as_notes() -> None:
    """Show warnings in the log of this package as notes; do nothing outside notebooks."""
    package = logging.getLogger("hyperplane")
    has_handler = any(isinstance(each, NoteHandler) for each in package.handlers)
    if find_kernel_shell() is not None and not has_handler:
        package.addHandler(NoteHandler())
