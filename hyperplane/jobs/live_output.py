"""Outputs of a notebook that show jobs and are updated while these run.

One thread updates all of them, and ends when no job that is shown can change any more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hyperplane.core.notebook_output import CellOutput, find_cell_id, find_kernel_shell

logger = logging.getLogger(__name__)

#: Seconds between two updates, and share of the time that they take, at most: a job of thousands of
#: chunks is read less often.
INTERVAL, _MAX_SHARE = 2.0, 0.05
#: Most outputs that are updated, the newest ones, and failures after which one is not any more.
MAX_OUTPUTS, _MAX_FAILURES = 20, 5


@dataclass(frozen=True)
class JobState:
    """What an output shows.

    Parameters
    ----------
    plain, markup : str
        The job as text and as HTML.
    can_change : bool
        Whether the job has not ended.
    """

    plain: str
    markup: str
    can_change: bool


class JobOutput:
    """Output of one cell with one job.

    Parameters
    ----------
    read : callable
        Returns the present state of the job.
    cell : str
        Id of the cell; empty if it is not known.
    """

    def __init__(self, read: Callable[[], JobState], cell: str) -> None:
        self._read, self.cell = read, cell
        self._output = CellOutput()
        self._shown = ""
        self._failures = 0

    def update(self) -> bool:
        """Show the present state if it has changed; return whether it can change again."""
        state = self._read()
        if state.markup != self._shown:
            self._output.show(state.plain, state.markup)
            self._shown = state.markup
        self._failures = 0
        return state.can_change

    def try_update(self) -> bool:
        """Update from the thread: a store that is busy may answer the next time."""
        try:
            return self.update()
        except Exception as failure:  # noqa: BLE001 - nothing waits for this thread
            logger.debug("a job is not shown: %s", failure)
            self._failures += 1
            return self._failures < _MAX_FAILURES


class OutputUpdater:
    """Updates outputs in a thread while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outputs: list[JobOutput] = []
        self._thread: threading.Thread | None = None
        #: Shells whose cells are watched.
        self._shells: list[Any] = []

    @property
    def count(self) -> int:
        """Number of outputs that are updated."""
        return len(self._outputs)

    def add(self, output: JobOutput, shell: Any) -> None:
        """Update an output until its job ends or its cell runs again."""
        with self._lock:
            if not any(each is shell for each in self._shells):
                shell.events.register("pre_run_cell", self.forget_cell)
                self._shells.append(shell)
            self._outputs = [*self._outputs, output][-MAX_OUTPUTS:]
            if self._thread is None:
                # Without the context of the cell: an update belongs to the cell that runs then.
                self._thread = threading.Thread(
                    target=self._update_repeatedly, name="hyperplane-jobs", daemon=True
                )
                self._thread.start()

    def forget_cell(self, info: Any) -> None:
        """Stop to update the outputs of a cell that runs again; a callback of IPython."""
        cell = getattr(info, "cell_id", None)
        if cell:
            with self._lock:
                self._outputs = [each for each in self._outputs if each.cell != cell]

    def _update_repeatedly(self) -> None:
        pause = INTERVAL
        while True:
            time.sleep(pause)
            began = time.monotonic()
            for output in list(self._outputs):
                if output in self._outputs and not output.try_update():
                    with self._lock:
                        self._outputs = [each for each in self._outputs if each is not output]
            pause = max(INTERVAL, (time.monotonic() - began) / _MAX_SHARE)
            with self._lock:
                if not self._outputs:
                    self._thread = None
                    return


_updater = OutputUpdater()


def show_job(read: Callable[[], JobState]) -> None:
    """Show a job in the output of the cell that runs, and update it there until the job ends."""
    shell = find_kernel_shell()
    output = JobOutput(read, "" if shell is None else find_cell_id(shell))
    if output.update() and shell is not None:
        _updater.add(output, shell)
