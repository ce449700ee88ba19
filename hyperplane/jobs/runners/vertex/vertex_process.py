"""One attempt on Vertex AI."""

from __future__ import annotations

import os

from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.gcp.gcp_process import GcpProcess
from hyperplane.jobs.runners.vertex.vertex_client import VertexClient
from hyperplane.jobs.runners.vertex.vertex_job_id import VertexJobId
from hyperplane.platforms.gcp.job_status import VertexJobStatus, parse_job
from hyperplane.platforms.gcp.task_log import LogEntry

#: The first machine of a job, and the only one unless the step is a training program.
_PRIMARY = "workerpool0-0"


class VertexProcess(GcpProcess[VertexJobId, VertexJobStatus]):
    """One attempt as a custom job of Vertex AI."""

    def __init__(self, command: AttemptCommand, client: VertexClient) -> None:
        super().__init__(command, client, VertexJobId, parse_job)

    def _format_entry(self, entry: LogEntry) -> str:
        """Return a line of the log, with the name of its machine unless that is the first one."""
        return entry.line if entry.replica == _PRIMARY else f"{entry.replica} | {entry.line}"

    def _record_failure(self, status: VertexJobStatus, ended_code: int = 1) -> None:
        if status.has_no_capacity:
            self._files.append_line(f"{status.reason} The job can be retried")
            self._files.record_end(os.EX_TEMPFAIL, status.stopped or None)
        else:
            super()._record_failure(status, ended_code)
