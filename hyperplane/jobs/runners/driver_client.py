"""Base of the clients of services of Amazon whose attempts are the programs of drivers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from hyperplane.jobs.runners.aws_client import AwsClient
from hyperplane.jobs.runners.driver_files import log_prefix, outcome_key
from hyperplane.jobs.runners.service_client import JobIdT
from hyperplane.jobs.runners.service_job_id import ServiceJobId
from hyperplane.platforms.aws.api import AwsApi
from hyperplane.platforms.aws.errors import AwsRequestError
from hyperplane.platforms.aws.object_staging import S3Staging
from hyperplane.platforms.aws.session import AwsSession

#: Statuses of an answer of S3 about an object that there is not: 403 without the permission to
#: list the bucket.
_MISSING = {403, 404}
#: Seconds by which the clocks of this machine and of a service may differ, and for which a creation
#: may have been repeated after it was first sent.
_EARLIER_SECONDS = 3600.0


def search_time(job_id: ServiceJobId) -> float:
    """Return the time since which a job may have been created, in seconds since 1970."""
    return job_id.written - _EARLIER_SECONDS


class DriverClient(AwsClient[JobIdT]):
    """Requests of all attempts.

    Attributes
    ----------
    api : AwsApi
        Requests to the service.
    """

    api_type: ClassVar[type[AwsApi]]
    api: Any

    def __init__(self, session: AwsSession, staging: S3Staging) -> None:
        super().__init__(session, staging)
        self.staging, self.api = staging, self.api_type(session)

    async def read_exit_code(self, name: str) -> int | None:
        """Return the exit code of an attempt; None if its driver has stored none."""
        try:
            content = await self.repeat(self.staging.read, outcome_key(self.staging.folder, name))
            return int(content)
        except (OSError, ValueError):
            return None

    def read_output(self, name: str, number: int) -> bytes | None:
        """Return a part of the output of an attempt; None if it is not there yet."""
        key = f"{log_prefix(self.staging.folder, name)}/{number:06}"
        return self.read_object(self.staging.folder.bucket, key)

    def read_object(self, bucket: str, key: str) -> bytes | None:
        """Return the content of an object; None if there is none. Raises AwsError."""
        try:
            answer = self.session.call("s3", "get_object", Bucket=bucket, Key=key)
        except AwsRequestError as error:
            if error.status not in _MISSING:
                raise
            return None
        content: bytes = answer["Body"].read()
        return content

    def _read_account(self) -> str:
        account: str = self.api.account()
        return account

    async def _read_alone(
        self, function: Any, ids: Sequence[JobIdT]
    ) -> list[Mapping[str, Any] | None]:
        """Return the run of some equal ids, which the service reads one at a time."""
        run = await self.run(function, ids[0].id)
        return [run for _ in ids]
