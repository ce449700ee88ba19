"""One attempt on AWS Glue."""

from __future__ import annotations

from typing import ClassVar

from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.cloudwatch_log import CloudWatchLog
from hyperplane.jobs.runners.driver_process import DriverProcess
from hyperplane.jobs.runners.glue.glue_client import GlueClient
from hyperplane.jobs.runners.glue.glue_job_id import GlueJobId
from hyperplane.platforms.aws.glue_status import GlueRunStatus, parse_run
from hyperplane.platforms.aws.glue_workers import PYTHON_SHELL

#: Type of a job -> beginning of its log groups, unless the run names another one.
_LOG_GROUPS = {PYTHON_SHELL: "/aws-glue/python-jobs"}
_SPARK_LOG_GROUP = "/aws-glue/jobs"


class GlueProcess(DriverProcess[GlueJobId, GlueRunStatus]):
    """One attempt as a job of AWS Glue with one run; the job is deleted after its end."""

    poll_seconds: ClassVar[float] = 10.0
    confirm_seconds: ClassVar[float] = 300.0
    platform: ClassVar[str] = "AWS Glue"

    _client: GlueClient

    def __init__(self, command: AttemptCommand, client: GlueClient, job_type: str) -> None:
        super().__init__(command, client, GlueJobId, parse_run)
        self._log_group = _LOG_GROUPS.get(job_type, _SPARK_LOG_GROUP)
        self._log: CloudWatchLog | None = None

    async def wait(self) -> int | None:
        """Wait for the end, and delete the job; return the exit code, None if there is none."""
        code = await super().wait()
        await self._delete_job()
        return code

    async def end(self, grace: float) -> int | None:
        """End the run, delete the job and return the exit code.

        ``grace`` has no effect: Glue decides when it kills a program.
        """
        if self._log is not None:
            self._log.is_patient = False
        code = await super().end(grace)
        if self._finished:  # else it is checked in the console
            await self._delete_job()
        return code

    async def _delete_job(self) -> None:
        """Delete the job of the attempt, unless that was done before."""
        job_id = GlueJobId.read(self.command)
        if job_id is None:
            return
        error = await self._client.delete(job_id.name)
        if error is None:
            GlueJobId.forget(self.command)
        else:
            self._files.append_line(f"job {job_id.name} of AWS Glue is not deleted: {error}")

    async def _copy_log(self, job_id: GlueJobId, status: GlueRunStatus) -> None:
        if status.started:
            await self._open_log(status).copy_new(job_id.run_id)

    async def _copy_results(self, job_id: GlueJobId, status: GlueRunStatus) -> None:
        if status.started:
            await self._open_log(status).copy_rest(job_id.run_id)
            if not self._files.extract_notebook() and status.has_succeeded:
                self._files.append_line("the executed notebook is not in the log of the run")
        await self._read_code(job_id, status)

    def _open_log(self, status: GlueRunStatus) -> CloudWatchLog:
        """Return the log of the run, whose group has another name with a security configuration."""
        if self._log is None:
            group = status.log_group.rstrip("/")
            group = group if group.startswith("/aws-glue/") else self._log_group
            self._log = CloudWatchLog(self.command, self._client, f"{group}/output")
        self._log.is_patient = not self._end_requested
        return self._log
