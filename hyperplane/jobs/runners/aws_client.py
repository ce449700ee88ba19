"""Base of the clients of services of Amazon: their errors, the account, and requests for logs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

from hyperplane.core.optional import is_installed
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
from hyperplane.platforms.object_staging import parse_staging
from hyperplane.platforms.request_rate import RequestRate

#: Maximum requests for logs in a second. Amazon limits those of an account.
_LOG_REQUESTS = 15.0


class AwsSettings(Protocol):
    """Settings of every runner for a service of Amazon."""

    @property
    def region(self) -> str | None:
        """Region of the services."""
        ...

    @property
    def profile(self) -> str | None:
        """Profile of the AWS configuration files."""
        ...


class StagingSettings(Protocol):
    """Settings of the staging folder."""

    @property
    def staging(self) -> str | None:
        """Its URL."""
        ...

    @property
    def create_bucket(self) -> bool:
        """Whether the first upload creates a missing bucket."""
        ...


def open_s3_staging(session: AwsSession, settings: StagingSettings) -> S3Staging:
    """Return the staging folder of the settings of a runner."""
    folder = parse_staging(str(settings.staging))
    return S3Staging(session, folder, create_bucket=settings.create_bucket)


def open_aws_session(settings: AwsSettings, environment: Mapping[str, str]) -> AwsSession:
    """Return a session with the settings of a runner and the environment of a submission."""
    return AwsSession(settings.region, settings.profile, environment)


def find_region(settings: AwsSettings, environment: Mapping[str, str]) -> str | None:
    """Return the region of the settings, else that of the session; None if it is unknown."""
    region = settings.region
    if region is None and is_installed("boto3"):
        with suppress(AwsError):
            region = open_aws_session(settings, environment).region()
    return region


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
