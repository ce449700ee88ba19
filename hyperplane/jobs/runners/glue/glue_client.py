"""Requests to AWS Glue by all attempts of a supervisor: create, start, find, read, stop, delete."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

from hyperplane.jobs.runners.aws_client import aws_errors
from hyperplane.jobs.runners.driver_client import DriverClient
from hyperplane.jobs.runners.glue.glue_job_id import GlueJobId
from hyperplane.jobs.runners.glue.requests import SYSTEM
from hyperplane.jobs.runners.retry_time import ServiceErrors
from hyperplane.platforms.aws.api import AwsApi
from hyperplane.platforms.aws.errors import AwsError, AwsRequestError, is_unconfirmed
from hyperplane.platforms.aws.glue import GlueApi

#: HTTP status of a request that can be repeated.
_REPEAT = 429


class GlueClient(DriverClient[GlueJobId]):
    """Requests of all attempts to AWS Glue."""

    errors: ClassVar[ServiceErrors] = aws_errors(SYSTEM)

    api_type: ClassVar[type[AwsApi]] = GlueApi
    api: GlueApi

    async def create(self, request: Mapping[str, Any]) -> str:
        """Create a job unless it exists, start it once and return the name of its run.

        Raises AwsError; one that is unconfirmed is only of the start.
        """
        try:
            await self.run(self.api.create_job, request)
        except AwsError as error:
            if not is_unconfirmed(error):
                raise
            # Nothing is started, and the same creation can be repeated: as after a refusal.
            raise AwsRequestError(str(error), status=_REPEAT) from error
        return await self.run(self.api.start_run, str(request["Name"]))

    async def delete(self, name: str) -> OSError | None:
        """Delete a job whose run has ended; return the error if Glue does not confirm it."""
        try:
            await self.repeat(self.api.delete_job, name)
        except OSError as error:
            return error
        return None

    async def _read(self, ids: Sequence[GlueJobId]) -> list[Mapping[str, Any] | None]:
        return await self._read_alone(self.api.read_run, ids)

    async def _search(self, job_id: GlueJobId) -> list[str]:
        return await self.run(self.api.find_runs, job_id.name)

    async def _stop(self, task_id: str, reason: str) -> None:
        del reason  # a run has none
        await self.run(self.api.stop_run, task_id)

    def _read_group(self, job_id: GlueJobId) -> Hashable:
        return job_id.id  # Glue reads one run at a time

    def _search_group(self, job_id: GlueJobId) -> Hashable:
        return job_id.name
