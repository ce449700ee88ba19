"""Base of the attempts that are the programs of drivers, in services without exit codes."""

from __future__ import annotations

import os
from typing import TypeVar

from hyperplane.jobs.runners.aws_process import AwsJobIdT, AwsProcess
from hyperplane.jobs.runners.driver_client import DriverClient
from hyperplane.platforms.aws.run_status import RunStatus

RunStatusT = TypeVar("RunStatusT", bound=RunStatus)


class DriverProcess(AwsProcess[AwsJobIdT, RunStatusT]):
    """One attempt whose exit code is an object of the bucket."""

    _client: DriverClient[AwsJobIdT]
    #: Exit code of the program; None if its driver has stored none.
    _code: int | None = None

    async def _read_code(self, job_id: AwsJobIdT, status: RunStatusT) -> None:
        """Read the exit code of a run that has ended, unless it has succeeded."""
        if not status.has_succeeded:
            self._code = await self._client.read_exit_code(job_id.name)

    def _record_end(self, status: RunStatusT) -> None:
        # A run may fail after its program has succeeded.
        super()._record_end(status.with_exit_code(self._code or None))

    def _record_failure(self, status: RunStatusT, ended_code: int = 1) -> None:
        if status.has_no_capacity:
            self._files.append_line(f"{status.describe()}. The job can be retried")
            self._files.record_end(os.EX_TEMPFAIL, status.stopped or None)
        else:
            super()._record_failure(status, ended_code)
