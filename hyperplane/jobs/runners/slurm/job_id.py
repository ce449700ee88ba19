"""Slurm job id of an attempt, stored beside its files, or found by the job's name.

A single batch job has it in ``attempt-1.slurm``, which is empty during the submission. For an array
task that file names the array and the task, and the id of the array is in a similar file beside the
folders of the chunks.
"""

from __future__ import annotations

import time
from pathlib import Path

from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.slurm.submit import batch_job_name
from hyperplane.platforms.slurm.arrays import task_id
from hyperplane.platforms.slurm.submit import SUBMIT_TIMEOUT_SECONDS

#: Seconds after which an unconfirmed submission cannot appear in the queue.
SUBMIT_SECONDS = SUBMIT_TIMEOUT_SECONDS + 30


class SlurmJobId:
    """Slurm job id of one attempt."""

    def __init__(self, command: AttemptCommand) -> None:
        self._command, self._cached = command, ""

    def read(self) -> str:
        """Return the id as ``42`` or ``42_7``; empty while it is unknown."""
        if not self._cached:
            command, task = self._locate()
            job_id = _read_text(command.file(".slurm"))
            self._cached = task_id(job_id, task) if job_id and task else job_id
        return self._cached

    def name(self) -> str:
        """Return the name of the batch job or array."""
        return batch_job_name(self._locate()[0])

    def write(self, job_id: str) -> None:
        """Store the id of the batch job or array."""
        self._locate()[0].file(".slurm").write_text(job_id)

    def may_appear(self) -> bool:
        """Whether its submission may be in progress, or was interrupted by a kill."""
        try:
            file = self._locate()[0].file(".slurm").stat()
        except OSError:
            return False
        return file.st_size == 0 and time.time() - file.st_mtime < SUBMIT_SECONDS

    def _locate(self) -> tuple[AttemptCommand, str]:
        """Return the command whose file has the id, and the task index in an array."""
        array, _, task = _read_text(self._command.file(".slurm")).rpartition("/")
        if not array:
            return self._command, ""
        folder = self._command.attempt_prefix.parent.parent
        return AttemptCommand((), {}, "", folder / array), task


def prepare_id_file(
    command: AttemptCommand, array: AttemptCommand | None = None, task: int = 0
) -> None:
    """Write the id file of an attempt: the array and the task; empty for a single batch job."""
    text = "" if array is None else f"{array.attempt_prefix.name}/{task}"
    command.file(".slurm").write_text(text)


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
