"""Requests to a service of Google Cloud by all attempts of a supervisor."""

from __future__ import annotations

from hyperplane.jobs.runners.gcp.log_reader import LogReader
from hyperplane.jobs.runners.retry_time import ServiceErrors
from hyperplane.jobs.runners.service_client import JobIdT, ServiceClient
from hyperplane.platforms.gcp.errors import (
    GcpCredentialsError,
    GcpError,
    is_invalid,
    is_retryable,
    is_unconfirmed,
)
from hyperplane.platforms.gcp.object_staging import GcsStaging
from hyperplane.platforms.gcp.session import GcpSession
from hyperplane.platforms.gcp.task_log import LogSource


def gcp_errors(system: str) -> ServiceErrors:
    """Return what the errors of a service of Google Cloud mean; ``system`` is its name."""
    return ServiceErrors(system, GcpCredentialsError, is_retryable, is_invalid, is_unconfirmed)


class GcpClient(ServiceClient[JobIdT]):
    """Base of clients; ``session`` is used in threads, and ``source`` has the logs."""

    def __init__(self, session: GcpSession, staging: GcsStaging, source: LogSource) -> None:
        super().__init__("hyperplane-gcp", staging)
        self.session, self.staging = session, staging
        self.logs = LogReader(self, session, source)

    async def project(self) -> str | GcpError:
        """Return the project of the present settings and credentials, or the error."""
        try:
            return await self.run(self.session.project)
        except GcpError as error:
            return error

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
