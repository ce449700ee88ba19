"""Requests to AWS Glue by all attempts of a supervisor: create, start, find, read, stop, delete."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

from hyperplane.jobs.runners.aws_client import AwsClient, aws_errors
from hyperplane.jobs.runners.glue.glue_job_id import GlueJobId
from hyperplane.jobs.runners.glue.requests import SYSTEM, outcome_key
from hyperplane.jobs.runners.retry_time import ServiceErrors
from hyperplane.platforms.aws.errors import AwsError, AwsRequestError, is_unconfirmed
from hyperplane.platforms.aws.glue import GlueApi
from hyperplane.platforms.aws.object_staging import S3Staging
from hyperplane.platforms.aws.session import AwsSession

#: HTTP status of a request that can be repeated.
_REPEAT = 429


class GlueClient(AwsClient[GlueJobId]):
    """Requests of all attempts to AWS Glue."""

    errors: ClassVar[ServiceErrors] = aws_errors(SYSTEM)

    def __init__(self, session: AwsSession, staging: S3Staging) -> None:
        super().__init__(session, staging)
        self.staging, self.api = staging, GlueApi(session)

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

    async def read_exit_code(self, name: str) -> int | None:
        """Return the exit code of an attempt; None if its script has stored none."""
        try:
            content = await self.repeat(self.staging.read, outcome_key(self.staging.folder, name))
            return int(content)
        except (OSError, ValueError):
            return None

    def _read_account(self) -> str:
        return self.api.account()

    async def _read(self, ids: Sequence[GlueJobId]) -> list[Mapping[str, Any] | None]:
        run = await self.run(self.api.read_run, ids[0].id)
        return [run for _ in ids]

    async def _search(self, job_id: GlueJobId) -> list[str]:
        return await self.run(self.api.find_runs, job_id.name)

    async def _stop(self, task_id: str, reason: str) -> None:
        del reason  # a run has none
        await self.run(self.api.stop_run, task_id)

    def _read_group(self, job_id: GlueJobId) -> Hashable:
        return job_id.id  # Glue reads one run at a time

    def _search_group(self, job_id: GlueJobId) -> Hashable:
        return job_id.name
