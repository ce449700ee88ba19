"""One attempt on Vertex AI."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.gcp.gcp_process import GcpProcess
from hyperplane.jobs.runners.vertex.vertex_client import VertexClient
from hyperplane.jobs.runners.vertex.vertex_job_id import VertexJobId
from hyperplane.platforms.gcp.job_status import VertexJobStatus, parse_job
from hyperplane.platforms.gcp.task_log import LogEntry

#: The first machine of a job, and the only one unless the step is a training program.
_PRIMARY = "workerpool0-0"


class VertexProcess(GcpProcess[VertexJobId, VertexJobStatus]):
    """One attempt as a custom job of Vertex AI, or as a tuning job with several such jobs."""

    def __init__(self, command: AttemptCommand, client: VertexClient) -> None:
        super().__init__(command, client, VertexJobId, parse_job)
        #: Keys of the logs of trials that are read.
        self._trial_logs: set[str] = set()

    async def _copy_log(self, job_id: VertexJobId, status: VertexJobStatus) -> None:
        """Copy the log of the job, or those of the trials of a tuning job."""
        if not job_id.is_tuning:
            await super()._copy_log(job_id, status)
        for trial in status.trials:
            if trial.log_key:
                self._trial_logs.add(trial.log_key)
                self._client.logs.follow(trial.log_key, partial(self._append_trial, trial.id))

    async def _copy_results(self, job_id: VertexJobId, status: VertexJobStatus) -> None:
        if not job_id.is_tuning:
            await super()._copy_results(job_id, status)
            return
        for key in sorted(self._trial_logs):
            error = await self._client.logs.finish(key, lambda: not self._end_requested)
            if error is not None:
                self._report_problem(f"the log of a trial cannot be read: {error}")
        self._trial_logs.clear()
        for trial in status.trials:
            self._files.append_line(trial.describe())
        if status.best is not None:
            self._files.append_line(f"the best: {status.best.describe()}")

    def _append_trial(self, number: str, entries: Sequence[LogEntry]) -> None:
        """Append lines of a trial, with its number."""
        self._append([entry._replace(line=f"trial {number} | {entry.line}") for entry in entries])

    def _format_entry(self, entry: LogEntry) -> str:
        """Return a line of the log, with the name of its machine unless that is the first one."""
        return entry.line if entry.replica == _PRIMARY else f"{entry.replica} | {entry.line}"

    def _record_failure(self, status: VertexJobStatus, ended_code: int = 1) -> None:
        if status.has_no_capacity:
            self._files.append_line(f"{status.reason} The job can be retried")
            self._files.record_end(os.EX_TEMPFAIL, status.stopped or None)
        else:
            super()._record_failure(status, ended_code)
