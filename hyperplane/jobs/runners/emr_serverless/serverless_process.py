"""One attempt on EMR Serverless."""

from __future__ import annotations

from typing import ClassVar

from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.emr_serverless.serverless_client import ServerlessClient
from hyperplane.jobs.runners.emr_serverless.serverless_job_id import ServerlessJobId
from hyperplane.jobs.runners.stored_output import StoredOutputProcess
from hyperplane.platforms.aws.emr_serverless_status import (
    ServerlessRunStatus,
    parse_serverless_run,
)


class ServerlessProcess(StoredOutputProcess[ServerlessJobId, ServerlessRunStatus]):
    """One attempt as a run of an application of EMR Serverless."""

    poll_seconds: ClassVar[float] = 10.0
    confirm_seconds: ClassVar[float] = 300.0
    platform: ClassVar[str] = "EMR Serverless"

    def __init__(self, command: AttemptCommand, client: ServerlessClient) -> None:
        super().__init__(command, client, ServerlessJobId, parse_serverless_run)
