"""Id of the AWS Batch job of an attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hyperplane.jobs.runners.aws_process import AwsJobId


@dataclass(frozen=True)
class BatchJobId(AwsJobId):
    """Name and id of a job, or of an array job and the index of the attempt in it.

    Parameters
    ----------
    queue : str
        Its queue.
    index : int or None
        Index of the attempt in an array; None for a single job.
    """

    queue: str
    index: int | None = None

    suffix: ClassVar[str] = ".batch"

    def task_id(self) -> str:
        """Return the id of the attempt: that of the job, or of the child of an array."""
        return self.id if self.index is None or not self.id else f"{self.id}:{self.index}"
