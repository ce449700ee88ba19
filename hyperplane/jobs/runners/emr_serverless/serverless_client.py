"""Requests to EMR Serverless by all attempts of a supervisor: start, find, read, cancel."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

from hyperplane.jobs.runners.aws_client import aws_errors
from hyperplane.jobs.runners.driver_client import DriverClient, search_time
from hyperplane.jobs.runners.emr_serverless.requests import SYSTEM
from hyperplane.jobs.runners.emr_serverless.serverless_job_id import ServerlessJobId
from hyperplane.jobs.runners.retry_time import ServiceErrors
from hyperplane.platforms.aws.api import AwsApi
from hyperplane.platforms.aws.emr_serverless import EmrServerlessApi


class ServerlessClient(DriverClient[ServerlessJobId]):
    """Requests of all attempts to EMR Serverless."""

    errors: ClassVar[ServiceErrors] = aws_errors(SYSTEM)
    api_type: ClassVar[type[AwsApi]] = EmrServerlessApi
    api: EmrServerlessApi

    async def create(self, request: Mapping[str, Any]) -> str:
        """Start a run once and return its name; its token refuses a second one."""
        return await self.run(self.api.start, request)

    async def _read(self, ids: Sequence[ServerlessJobId]) -> list[Mapping[str, Any] | None]:
        return await self._read_alone(self.api.read_run, ids)

    async def _search(self, job_id: ServerlessJobId) -> list[str]:
        since = search_time(job_id)
        return await self.run(self.api.find_runs, job_id.application, job_id.name, since)

    async def _stop(self, task_id: str, reason: str) -> None:
        del reason  # a run has none
        await self.run(self.api.stop, task_id)

    def _read_group(self, job_id: ServerlessJobId) -> Hashable:
        return job_id.id  # the service reads one run at a time

    def _search_group(self, job_id: ServerlessJobId) -> Hashable:
        return (job_id.application, job_id.name)
