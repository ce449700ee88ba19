"""Base of the clients of services of Amazon: their errors, the account, and requests for logs."""

from __future__ import annotations

from abc import abstractmethod

from hyperplane.jobs.runners.retry_time import ServiceErrors
from hyperplane.jobs.runners.service_client import JobIdT, ServiceClient
from hyperplane.platforms.aws.errors import (
    AwsCredentialsError,
    AwsError,
    is_invalid,
    is_retryable,
    is_unconfirmed,
)
from hyperplane.platforms.aws.object_staging import S3Staging
from hyperplane.platforms.aws.session import AwsSession
from hyperplane.platforms.request_rate import RequestRate

#: Maximum requests for logs in a second. Amazon limits those of an account.
_LOG_REQUESTS = 15.0


def aws_errors(system: str) -> ServiceErrors:
    """Return what errors of Amazon mean for a submission to a service."""
    return ServiceErrors(system, AwsCredentialsError, is_retryable, is_invalid, is_unconfirmed)


class AwsClient(ServiceClient[JobIdT]):
    """Requests of all attempts; ``session`` is used in threads."""

    def __init__(self, session: AwsSession, staging: S3Staging) -> None:
        super().__init__("hyperplane-aws", staging)
        self.session = session
        self.log_requests = RequestRate(_LOG_REQUESTS)

    async def account(self) -> str | AwsError:
        """Return the account of the present credentials, or the error."""
        try:
            return await self.run(self._read_account)
        except AwsError as error:
            return error

    @abstractmethod
    def _read_account(self) -> str:
        """Return the account of the present credentials."""
