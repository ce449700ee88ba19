"""One attempt as a job of a service of Google Cloud: its log and its executed notebook."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from hyperplane.core.errors.platforms import PlatformError
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.gcp.bucket_task import notebook_key
from hyperplane.jobs.runners.gcp.gcp_client import GcpClient
from hyperplane.jobs.runners.gcp.gcp_job_id import GcpJobId
from hyperplane.jobs.runners.service_process import ServiceProcess, StatusT
from hyperplane.platforms.gcp.task_log import LogEntry

GcpJobIdT = TypeVar("GcpJobIdT", bound=GcpJobId)


class GcpProcess(ServiceProcess[GcpJobIdT, StatusT]):
    """Base of attempts whose logs are in Cloud Logging, and whose notebooks are in the bucket."""

    poll_seconds: ClassVar[float] = 10.0
    confirm_seconds: ClassVar[float] = 600.0
    platform: ClassVar[str] = "Google Cloud"

    _client: GcpClient[GcpJobIdT]

    def __init__(
        self,
        command: AttemptCommand,
        client: GcpClient[GcpJobIdT],
        job_id_type: type[GcpJobIdT],
        parse: Callable[[Mapping[str, Any]], StatusT],
    ) -> None:
        super().__init__(command, client, job_id_type, parse)
        #: Whether lines of the container were copied; each supervisor copies them from the first.
        self._has_lines = False

    async def _may_exist(self, job_id: GcpJobIdT) -> bool:
        """Return whether a job was created in another project than that of the credentials now.

        Its name is then searched in the wrong project.
        """
        project = await self._client.project()
        if isinstance(project, PlatformError):
            self._report_error(project)
            return True
        if project == job_id.project or not job_id.project:
            return False
        self._report_problem(
            f"job {job_id.name} is in project {job_id.project} of Google Cloud, but the settings "
            f"and credentials are of project {project}; cancel the job, or continue it with the "
            "former ones"
        )
        return True

    def _format_entry(self, entry: LogEntry) -> str:
        """Return a line of the log."""
        return entry.line

    async def _copy_log(self, job_id: GcpJobIdT, status: StatusT) -> None:
        if status.started:
            self._client.logs.follow(job_id.log_key, self._append)

    async def _copy_results(self, job_id: GcpJobIdT, status: StatusT) -> None:
        if status.started:
            error = await self._client.logs.finish(job_id.log_key, lambda: not self._end_requested)
            if error is not None:
                self._report_problem(f"the log of the container cannot be read: {error}")
            await self._fetch_notebook(is_required=status.has_succeeded)

    def _append(self, entries: Sequence[LogEntry]) -> None:
        if not self._has_lines:
            self._files.restart_log()
        with self.command.file(".log").open("a", encoding="utf-8", errors="replace") as log:
            log.writelines(f"{self._format_entry(entry)}\n" for entry in entries)
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
