"""Requests to Vertex AI by all attempts of a supervisor: create, find, read, cancel."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, ClassVar

from hyperplane.jobs.runners.retry_time import ServiceErrors
from hyperplane.jobs.runners.service_client import ServiceClient
from hyperplane.jobs.runners.vertex.log_reader import LogReader
from hyperplane.jobs.runners.vertex.requests import SYSTEM
from hyperplane.jobs.runners.vertex.vertex_job_id import VertexJobId
from hyperplane.platforms.gcp.errors import GcpCredentialsError, GcpError, is_retryable
from hyperplane.platforms.gcp.object_staging import GcsStaging
from hyperplane.platforms.gcp.session import GcpSession
from hyperplane.platforms.gcp.vertex import VertexApi
from hyperplane.platforms.slurm.request_batcher import RequestBatcher

_log = logging.getLogger(__name__)
#: Number of jobs from which they are listed, and not read one by one.
_LIST_FROM = 4

Description = dict[str, Any] | GcpError | None


class VertexClient(ServiceClient):
    """Requests of all attempts; ``session`` is used in threads."""

    errors: ClassVar[ServiceErrors] = ServiceErrors(SYSTEM, GcpCredentialsError, is_retryable)

    def __init__(self, session: GcpSession, staging: GcsStaging) -> None:
        super().__init__("hyperplane-gcp")
        self.session, self.staging, self.api = session, staging, VertexApi(session)
        self.logs = LogReader(self, session)
        self._describe_error = ""
        self._descriptions: RequestBatcher[VertexJobId, Description] = RequestBatcher(
            self._describe
        )

    async def describe(self, job_id: VertexJobId) -> Description:
        """Return a job; None if Vertex AI does not have it, and the error without an answer."""
        # One request, or few, for all attempts of a job of hyperplane.
        return await self._descriptions.request(job_id, job_id.prefix)

    async def _describe(self, ids: list[VertexJobId]) -> list[Description]:
        names = list(dict.fromkeys(job_id.name for job_id in ids))
        try:
            jobs: dict[str, dict[str, Any]] = {}
            if len(names) >= _LIST_FROM:
                jobs = await self.run(self.api.list_active, ids[0].prefix)
            # Those that have ended, and those that the list does not show yet.
            missing = [name for name in names if name not in jobs]
            jobs |= await self.run(self.api.read_jobs, missing)
        except GcpError as error:
            if str(error) != self._describe_error:
                self._describe_error = str(error)
                _log.warning("the jobs of Vertex AI cannot be observed: %s", error)
            return [error for _ in ids]
        self._describe_error = ""
        return [jobs.get(job_id.name) for job_id in ids]

    async def find(self, display_name: str) -> str | GcpError:
        """Return the name of the job of an attempt by its display name; empty if there is none.

        If two creations of it were accepted, the later jobs are cancelled.
        """
        try:
            found, *others = await self.run(self.api.find_jobs, display_name) or [""]
            for name in others:
                await self.run(self.api.cancel, name)
        except GcpError as error:
            return error
        return found

    async def cancel(self, name: str) -> GcpError | None:
        """Request the end of a job; return the error if Vertex AI does not confirm it."""
        try:
            await self.run(self.api.cancel, name)
        except GcpError as error:
            return error
        return None

    async def create(self, job: Mapping[str, Any]) -> str:
        """Send a creation once and return the name of the job; raise GcpError if it fails."""
        return await self.run(self.api.create, job)

    async def download(self, key: str) -> bytes | GcpError:
        """Return an object of the staging folder, or the error."""
        try:
            return await self.run(self.staging.read, key)
        except GcpError as error:
            return error

    def close(self) -> None:
        """End the threads, and stop reading logs."""
        self.logs.close()
        super().close()
