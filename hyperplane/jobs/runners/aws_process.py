"""Base of the attempts on services of Amazon: a job of another account is not lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from hyperplane.core.errors.platforms import PlatformError
from hyperplane.jobs.runners.aws_client import AwsClient
from hyperplane.jobs.runners.service_job_id import ServiceJobId
from hyperplane.jobs.runners.service_process import ServiceProcess, StatusT


@dataclass(frozen=True)
class AwsJobId(ServiceJobId):
    """Name and id of a job.

    Parameters
    ----------
    account : str
        Account of the credentials at the submission; empty if it is unknown.
    """

    account: str = field(default="", kw_only=True)


AwsJobIdT = TypeVar("AwsJobIdT", bound=AwsJobId)


class AwsProcess(ServiceProcess[AwsJobIdT, StatusT]):
    """One attempt as a job of a service of Amazon."""

    _client: AwsClient[AwsJobIdT]

    async def _may_exist(self, job_id: AwsJobIdT) -> bool:
        """Return whether the credentials are not of the account of a job, as far as it is known."""
        account = await self._client.account()
        if isinstance(account, PlatformError):
            self._report_error(account)
            return True
        if account == job_id.account or not job_id.account:
            return False
        self._report_problem(
            f"job {job_id.name} is in account {job_id.account} of Amazon, but the credentials are "
            f"of account {account}; cancel the job, or continue it with the former credentials"
        )
        return True
