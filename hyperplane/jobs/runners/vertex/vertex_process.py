"""One attempt on Vertex AI: watch its custom job until it has ended, and copy its log."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.remote_attempt_files import RemoteAttemptFiles
from hyperplane.jobs.runners.vertex.requests import SYSTEM, notebook_key
from hyperplane.jobs.runners.vertex.vertex_client import VertexClient
from hyperplane.jobs.runners.vertex.vertex_job_id import VertexJobId, read_job_id
from hyperplane.platforms.gcp.errors import GcpError, is_invalid, is_retryable
from hyperplane.platforms.gcp.job_status import SUCCEEDED, VertexJobStatus, parse_job
from hyperplane.platforms.gcp.task_log import LogEntry

#: Seconds between polls.
POLL_SECONDS = 10.0
#: Seconds for which Vertex AI must not have a job before it counts as lost: the answer to a
#: creation comes before the job is visible everywhere.
VANISHED_SECONDS = 60.0
#: Seconds between requests to cancel a job, and within which it must end after an answer.
END_SECONDS, CONFIRM_SECONDS = 10.0, 600.0
#: The first machine of a job, and the only one unless the step is a training program.
_PRIMARY = "workerpool0-0"


class VertexProcess:
    """One attempt as a custom job of Vertex AI."""

    def __init__(self, command: AttemptCommand, client: VertexClient) -> None:
        self.command, self._client = command, client
        self._files = RemoteAttemptFiles(command, SYSTEM)
        self._job_id: VertexJobId | None = None
        self._finished = self._end_requested = False
        self._pending_text, self._problem = "", ""
        self._missing_since = 0.0
        #: Whether lines of the container were copied; each supervisor copies them from the first.
        self._has_lines = False
        self._lock = asyncio.Lock()

    def exit_code(self) -> int | None:
        """Return the recorded exit code."""
        return self._files.exit_code()

    def end_time(self) -> float:
        """Return the end time of the container; 0 if unknown."""
        return self._files.end_time()

    async def wait_until_running(self) -> None:
        """Wait until the container runs, or will never run."""
        while not await self._is_finished() and not self._files.started_as():
            await asyncio.sleep(POLL_SECONDS)

    async def wait(self) -> int | None:
        """Wait for the end; return the exit code, None if there is none."""
        while not await self._is_finished():
            await asyncio.sleep(POLL_SECONDS)
        return self.exit_code()

    async def end(self, grace: float) -> int | None:
        """Cancel the job and return its exit code.

        ``grace`` has no effect: Vertex AI decides when it kills a container.
        """
        del grace
        self._end_requested = True
        requested, until = float("-inf"), time.monotonic() + CONFIRM_SECONDS
        error: GcpError | None = None
        while not await self._is_finished():
            job_id = self._read_id()
            if job_id is not None and job_id.name and time.monotonic() - requested > END_SECONDS:
                requested = time.monotonic()
                error = await self._client.cancel(job_id.name)
                if error is not None:
                    self._report_error(error)
                    if is_retryable(error):  # the job continues until Vertex AI has the request
                        until = time.monotonic() + CONFIRM_SECONDS
            if time.monotonic() > until:
                name = (job_id.name or job_id.display_name) if job_id else ""
                reason = f": {error}" if error else ""
                self._files.append_line(
                    f"Vertex AI does not confirm that the step has ended{reason}; check job "
                    f"{name} in the console of Google Cloud"
                )
                break
            await asyncio.sleep(min(POLL_SECONDS, 1.0))
        return self.exit_code()

    async def _is_finished(self) -> bool:
        """Poll; return whether the attempt is finished. Its exit code, if any, is then recorded."""
        async with self._lock:
            if not self._finished:
                self._finished = self.exit_code() is not None or await self._check_finished()
            return self._finished

    def _read_id(self) -> VertexJobId | None:
        if self._job_id is None or not self._job_id.name:
            self._job_id = read_job_id(self.command)
        return self._job_id

    async def _check_finished(self) -> bool:
        job_id = self._read_id()
        if job_id is None:
            return True  # it was not created
        if not job_id.name:
            return await self._find_created(job_id)
        job = await self._client.describe(job_id)
        if isinstance(job, GcpError):
            self._missing_since = 0.0
            self._report_error(job)
            return False
        if job is None:
            return await self._has_vanished(job_id)
        self._missing_since = 0.0
        return await self._check_status(job_id, parse_job(job))

    async def _find_created(self, job_id: VertexJobId) -> bool:
        """Search a job whose creation had no answer; return whether there is none."""
        may_appear = job_id.may_appear()  # before the request
        found = await self._client.find(job_id.display_name)
        if isinstance(found, GcpError):
            self._report_error(found)
            return False
        if found:
            self._job_id = job_id.with_name(found)
            with suppress(OSError):  # on a full disk it is found by its display name again
                self._job_id.write(self.command)
            return False
        text = f"no answer says whether job {job_id.display_name} was created"
        if may_appear:
            self._report_status(f"{text}; its name is searched in the list of jobs")
            return False
        self._files.append_line(f"{text}, and Vertex AI does not list it: the attempt is lost")
        return True

    async def _has_vanished(self, job_id: VertexJobId) -> bool:
        """Return whether Vertex AI has not had the job for so long that it is lost.

        It is cancelled before, because the attempt is then repeated.
        """
        self._missing_since = self._missing_since or time.monotonic()
        if time.monotonic() - self._missing_since < VANISHED_SECONDS:
            return False
        error = await self._client.cancel(job_id.name)
        # An answer that refuses the request, other than for a permission, is that it has no job.
        if error is not None and not is_invalid(error):
            self._report_error(error)
            return False
        self._files.append_line(f"Vertex AI has no job {job_id.name}: the attempt is lost")
        return True

    async def _check_status(self, job_id: VertexJobId, status: VertexJobStatus) -> bool:
        if status.started:
            self._files.record_start(job_id.name, status.started)
            self._client.logs.follow(job_id.number, self._append)
        if not status.has_ended:
            if not self._files.started_as():
                self._report_status(f"job {job_id.name} is {status.describe()}")
            return False
        if status.started:
            error = await self._client.logs.finish(job_id.number, lambda: not self._end_requested)
            if error is not None:
                self._report_problem(f"the log of the container cannot be read: {error}")
            await self._fetch_notebook(is_required=status.state == SUCCEEDED)
        self._record_end(status)
        return True

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

    def _report_status(self, text: str) -> None:
        """Write to the log why the attempt does not run yet, when that changes."""
        if text != self._pending_text:
            self._pending_text = text
            if not self._files.started_as():
                self._files.write_status(text)

    def _report_error(self, error: GcpError) -> None:
        self._report_problem(f"a request to Google Cloud failed and is repeated: {error}")

    def _report_problem(self, text: str) -> None:
        """Append a line to the log, also while the attempt runs, when it changes."""
        if text != self._problem:
            self._problem = text
            self._files.append_line(text)

    def _record_end(self, status: VertexJobStatus) -> None:
        """Record the exit code; if there is none, log why Vertex AI ended the job."""
        at = status.stopped or None
        if status.state == SUCCEEDED:
            self._files.record_end(0, at)
        elif status.is_lost:
            self._files.append_line(f"Vertex AI lost the machine of the job: {status.message}")
        elif status.is_out_of_memory:
            self._files.append_line(
                f"{status.message}: request more with resources.ram_gb, or set more_memory, the "
                "factor by which the memory grows after such a failure"
            )
            self._files.record_end(-signal.SIGKILL, at)
        elif status.has_no_capacity:
            self._files.append_line(f"{status.message} The job can be retried")
            self._files.record_end(os.EX_TEMPFAIL, at)
        elif status.exit_code is None:
            if not self._end_requested:
                self._files.append_line(f"Vertex AI ended the job: {status.describe()}")
            self._files.record_end(1, at)
        else:
            self._files.record_end(status.exit_code, at)


def _format_entry(entry: LogEntry) -> str:
    """Return a line of the log, with the name of its machine unless that is the first one."""
    return entry.line if entry.replica == _PRIMARY else f"{entry.replica} | {entry.line}"
