"""The number of an attempt's batch job: written down beside its traces, or to be found by name.

A single batch job has it in ``attempt-1.slurm``, which is empty while it is being submitted. For a
task of an array that file says which array and which task, and the number of the array is in a file
of the same kind beside the folders of the chunks.
"""

from __future__ import annotations

import time
from pathlib import Path

from hyperplane.jobs.processes import Command
from hyperplane.jobs.runners.slurm_submit import batch_job_name

#: Seconds in which a submission whose end nobody has seen may come to the queue: more than sbatch
#: has for an answer.
SUBMIT_SECONDS = 150.0


class SlurmJobId:
    """The number of the batch job of one attempt.

    Parameters
    ----------
    command : Command
        The attempt.
    """

    def __init__(self, command: Command) -> None:
        self._command, self._cached = command, ""

    def read(self) -> str:
        """The number, as ``42`` or ``42_7``; empty while nobody has written it down."""
        if not self._cached:
            whole, task = self._locate()
            number = _read_text(whole.file(".slurm"))
            self._cached = f"{number}_{task}" if number and task else number
        return self._cached

    def name(self) -> str:
        """The name of the batch job or array."""
        return batch_job_name(self._locate()[0])

    def write(self, number: str) -> None:
        """Write down the number of the batch job or array."""
        self._locate()[0].file(".slurm").write_text(number)

    def may_appear(self) -> bool:
        """Whether somebody may be submitting it just now, or was killed while he did."""
        try:
            file = self._locate()[0].file(".slurm").stat()
        except OSError:
            return False
        return file.st_size == 0 and time.time() - file.st_mtime < SUBMIT_SECONDS

    def _locate(self) -> tuple[Command, str]:
        """Whose number it is, and which of its tasks."""
        array, _, task = _read_text(self._command.file(".slurm")).rpartition("/")
        if not array:
            return self._command, ""
        folder = self._command.attempt_prefix.parent.parent
        return Command((), {}, "", folder / array), task


def prepare_id_file(command: Command, array: Command | None = None, task: int = 0) -> None:
    """Write down before an attempt is submitted where its number will be."""
    text = "" if array is None else f"{array.attempt_prefix.name}/{task}"
    command.file(".slurm").write_text(text)


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
