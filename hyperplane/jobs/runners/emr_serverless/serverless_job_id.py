"""Id of the run of an attempt on EMR Serverless."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hyperplane.jobs.runners.aws_process import AwsJobId


@dataclass(frozen=True)
class ServerlessJobId(AwsJobId):
    """Name of an attempt, and as the id ``APPLICATION/RUN``.

    Parameters
    ----------
    application : str
        Application in which the run is searched.
    """

    application: str = ""

    suffix: ClassVar[str] = ".emr-serverless"
