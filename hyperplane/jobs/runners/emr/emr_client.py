"""Requests to Amazon EMR by all attempts of a supervisor: start, find, read, end."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

from hyperplane.jobs.runners.aws_client import aws_errors
from hyperplane.jobs.runners.driver_client import DriverClient, search_time
from hyperplane.jobs.runners.emr.emr_job_id import EmrJobId
from hyperplane.jobs.runners.emr.requests import SYSTEM
from hyperplane.jobs.runners.retry_time import ServiceErrors
from hyperplane.platforms.aws.api import AwsApi
from hyperplane.platforms.aws.emr import EmrApi


class EmrClient(DriverClient[EmrJobId]):
    """Requests of all attempts to EMR."""

    errors: ClassVar[ServiceErrors] = aws_errors(SYSTEM)
    api_type: ClassVar[type[AwsApi]] = EmrApi
    api: EmrApi

    async def create(self, request: Mapping[str, Any]) -> str:
        """Start a cluster, or add a step, once; return the name of the run."""
        return await self.run(self.api.start, request)

    async def _read(self, ids: Sequence[EmrJobId]) -> list[Mapping[str, Any] | None]:
        cluster = ids[0].id.partition("/")[0]
        names = [job_id.id for job_id in ids]
        runs = await self.run(self.api.read_runs, cluster, dict.fromkeys(names))
        return [runs.get(name) for name in names]

    async def _search(self, job_id: EmrJobId) -> list[str]:
        since = search_time(job_id)
        if job_id.cluster:
            return await self.run(self.api.find_steps, job_id.cluster, job_id.name, since)
        return await self.run(self.api.find_clusters, job_id.name, since)

    async def _stop(self, task_id: str, reason: str) -> None:
        del reason  # EMR keeps none
        await self.run(self.api.stop, task_id)

    def _read_group(self, job_id: EmrJobId) -> Hashable:
        return job_id.id.partition("/")[0]

    def _search_group(self, job_id: EmrJobId) -> Hashable:
        return (job_id.cluster, job_id.name)
