"""One attempt on Vertex AI."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.service_process import ServiceProcess
from hyperplane.jobs.runners.vertex.requests import notebook_key
from hyperplane.jobs.runners.vertex.vertex_client import VertexClient
from hyperplane.jobs.runners.vertex.vertex_job_id import VertexJobId
from hyperplane.platforms.gcp.job_status import VertexJobStatus, parse_job
from hyperplane.platforms.gcp.task_log import LogEntry

#: The first machine of a job, and the only one unless the step is a training program.
_PRIMARY = "workerpool0-0"


class VertexProcess(ServiceProcess[VertexJobId, VertexJobStatus]):
    """One attempt as a custom job of Vertex AI."""

    poll_seconds: ClassVar[float] = 10.0
    confirm_seconds: ClassVar[float] = 600.0
    platform: ClassVar[str] = "Google Cloud"

    _client: VertexClient

    def __init__(self, command: AttemptCommand, client: VertexClient) -> None:
        super().__init__(command, client, VertexJobId, parse_job)
        #: Whether lines of the container were copied; each supervisor copies them from the first.
        self._has_lines = False

    async def _copy_log(self, job_id: VertexJobId, status: VertexJobStatus) -> None:
        if status.started:
            self._client.logs.follow(job_id.number, self._append)

    async def _copy_results(self, job_id: VertexJobId, status: VertexJobStatus) -> None:
        if status.started:
            error = await self._client.logs.finish(job_id.number, lambda: not self._end_requested)
            if error is not None:
                self._report_problem(f"the log of the container cannot be read: {error}")
            await self._fetch_notebook(is_required=status.has_succeeded)

    def _append(self, entries: Sequence[LogEntry]) -> None:
        if not self._has_lines:
            self._files.restart_log()
        with self.command.file(".log").open("a") as log:
            log.writelines(f"{_format_entry(entry)}\n" for entry in entries)
        self._has_lines = True

    async def _fetch_notebook(self, *, is_required: bool) -> None:
        """Copy the executed notebook from the staging folder, if the step is one."""
        try:
            output = Path(self.command.file(".notebook").read_text())
        except OSError:
            return
        key = notebook_key(self._client.staging.folder, self.command)
        content = await self._client.download(key)
        if isinstance(content, bytes):
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_bytes(content)
        elif is_required:
            self._files.append_line(f"the executed notebook cannot be read: {content}")

    def _record_failure(self, status: VertexJobStatus, ended_code: int = 1) -> None:
        if status.has_no_capacity:
            self._files.append_line(f"{status.reason} The job can be retried")
            self._files.record_end(os.EX_TEMPFAIL, status.stopped or None)
        else:
            super()._record_failure(status, ended_code)


def _format_entry(entry: LogEntry) -> str:
    """Return a line of the log, with the name of its machine unless that is the first one."""
    return entry.line if entry.replica == _PRIMARY else f"{entry.replica} | {entry.line}"
