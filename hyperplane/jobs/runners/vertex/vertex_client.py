"""Requests to Vertex AI by all attempts of a supervisor: create, find, read, cancel."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from hyperplane.jobs.runners.gcp.gcp_client import GcpClient, gcp_errors
from hyperplane.jobs.runners.retry_time import ServiceErrors
from hyperplane.jobs.runners.vertex.requests import SYSTEM
from hyperplane.jobs.runners.vertex.vertex_job_id import VertexJobId
from hyperplane.platforms.gcp.object_staging import GcsStaging
from hyperplane.platforms.gcp.session import GcpSession
from hyperplane.platforms.gcp.task_log import VERTEX_LOGS
from hyperplane.platforms.gcp.vertex import VertexApi

#: Number of jobs from which they are listed, and not read one by one.
_LIST_FROM = 4


class VertexClient(GcpClient[VertexJobId]):
    """Requests of all attempts; ``session`` is used in threads."""

    errors: ClassVar[ServiceErrors] = gcp_errors(SYSTEM)

    def __init__(self, session: GcpSession, staging: GcsStaging) -> None:
        super().__init__(session, staging, VERTEX_LOGS)
        self.api = VertexApi(session)

    async def create(self, request: Mapping[str, Any]) -> str:
        """Send a creation once and return the name of the job; raise GcpError if it fails."""
        return await self.run(self.api.create, request)

    async def _read(self, ids: Sequence[VertexJobId]) -> list[Mapping[str, Any] | None]:
        names = list(dict.fromkeys(job_id.id for job_id in ids))
        jobs: dict[str, dict[str, Any]] = {}
        if len(names) >= _LIST_FROM:
            jobs = await self.run(self.api.list_active, ids[0].prefix)
        # Those that have ended, and those that the list does not show yet.
        missing = [name for name in names if name not in jobs]
        jobs |= await self.run(self.api.read_jobs, missing)
        return [jobs.get(job_id.id) for job_id in ids]

    async def _search(self, job_id: VertexJobId) -> list[str]:
        if job_id.is_tuning:
            return await self.run(partial(self.api.find_jobs, job_id.name, is_tuning=True))
        return await self.run(self.api.find_jobs, job_id.name)

    async def _stop(self, task_id: str, reason: str) -> None:
        del reason  # a custom job has none
        await self.run(self.api.cancel, task_id)

    def _read_group(self, job_id: VertexJobId) -> Hashable:
        # One request, or few, for all attempts of a job of hyperplane.
        return job_id.prefix

    def _search_group(self, job_id: VertexJobId) -> Hashable:
        return job_id.name
