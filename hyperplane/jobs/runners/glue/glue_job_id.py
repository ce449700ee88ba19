"""Id of the Glue job of an attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hyperplane.jobs.runners.aws_process import AwsJobId


@dataclass(frozen=True)
class GlueJobId(AwsJobId):
    """Name of the job of an attempt, and the name of its only run, ``JOB/RUN``, as the id."""

    suffix: ClassVar[str] = ".glue"

    @property
    def run_id(self) -> str:
        """Id of the run, which is the name of its log stream; empty until the answer."""
        return self.id.rpartition("/")[2]
