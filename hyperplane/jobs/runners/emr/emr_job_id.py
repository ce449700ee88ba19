"""Id of the EMR step of an attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hyperplane.jobs.runners.aws_process import AwsJobId


@dataclass(frozen=True)
class EmrJobId(AwsJobId):
    """Name of an attempt, and as the id its cluster, or ``CLUSTER/STEP``.

    Parameters
    ----------
    cluster : str
        Cluster of the user to which the step is added; empty for one that is started for it.
    """

    cluster: str = ""

    suffix: ClassVar[str] = ".emr"
