"""Id of the AWS Batch job of an attempt, stored beside its files before and after the submission.

The file is written before the request, so that a supervisor that is killed before it has the answer
finds the job by its name, and does not submit another one.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace

from hyperplane.jobs.execution.attempt_process import AttemptCommand

_SUFFIX = ".batch"
#: Seconds after which a submission without an answer cannot appear in the list of jobs any more.
UNCONFIRMED_SECONDS = 120.0


@dataclass(frozen=True)
class BatchJobId:
    """Name and id of the job of an attempt.

    Parameters
    ----------
    name : str
        Name of the job or array.
    queue : str
        Its queue.
    index : int or None
        Index of the attempt in an array; None for a single job.
    id : str
        Id of the job or array; empty until the answer to its submission.
    written : float
        Time when the submission was sent or, if there was no answer, given up.
    account : str
        Account of the credentials at the submission.
    """

    name: str
    queue: str
    index: int | None = None
    id: str = ""
    written: float = 0.0
    account: str = ""

    def task_id(self) -> str:
        """Return the id of the attempt: that of the job, or of the child of an array."""
        return self.id if self.index is None or not self.id else f"{self.id}:{self.index}"

    def may_appear(self) -> bool:
        """Whether a submission without an answer may still become visible."""
        return time.time() - self.written < UNCONFIRMED_SECONDS

    def with_id(self, job_id: str) -> BatchJobId:
        """Return a copy with the id of the job or array."""
        return replace(self, id=job_id)

    def write(self, command: AttemptCommand) -> None:
        """Store it beside the files of an attempt."""
        draft = command.file(f"{_SUFFIX}.draft")
        draft.write_text(json.dumps(asdict(self)))
        draft.replace(command.file(_SUFFIX))


def read_job_id(command: AttemptCommand) -> BatchJobId | None:
    """Return what is stored beside the files of an attempt; None if nothing was submitted."""
    try:
        return BatchJobId(**json.loads(command.file(_SUFFIX).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def forget_job_id(command: AttemptCommand) -> None:
    """Remove what is stored beside the files of an attempt."""
    command.file(_SUFFIX).unlink(missing_ok=True)
