"""Base of the attempts whose drivers store their output in the bucket, and of their logs."""

from __future__ import annotations

import asyncio
import time
import zlib

from hyperplane.jobs.runners.aws_process import AwsJobIdT
from hyperplane.jobs.runners.driver_process import DriverProcess, RunStatusT
from hyperplane.jobs.runners.output_log import OutputLog
from hyperplane.platforms.aws.errors import AwsError
from hyperplane.platforms.object_staging import parse_staging

#: Seconds for which the log that the service keeps is waited for, if the program of a step has not
#: been started: it is written every five minutes. Seconds between requests, and shown lines.
LOG_SECONDS, LOG_PAUSE, _LOG_LINES = 360.0, 15.0, 100


class StoredOutputProcess(DriverProcess[AwsJobIdT, RunStatusT]):
    """One attempt whose driver stores what its program prints."""

    _log: OutputLog | None = None

    async def _copy_log(self, job_id: AwsJobIdT, status: RunStatusT) -> None:
        if status.started and not status.has_ended:
            await self._open_log(job_id).copy_new()

    async def _copy_results(self, job_id: AwsJobIdT, status: RunStatusT) -> None:
        await self._read_code(job_id, status)
        if not status.started:
            return
        reason = await self._open_log(job_id).copy_rest(is_patient=not self._end_requested)
        if reason:
            self._files.append_line(f"the log of the step cannot be read: {reason}")
        if not self._files.extract_notebook() and status.has_succeeded:
            self._files.append_line("the executed notebook is not in the log of the step")
        if not status.has_succeeded and self._code is None and status.log_url:
            await self._copy_service_log(f"{status.log_url}/stderr.gz")

    async def _copy_service_log(self, url: str) -> None:
        """Append the end of what was printed before the program of the step began."""
        place, until = parse_staging(url), time.monotonic() + LOG_SECONDS
        content: bytes | None = None
        while content is None and time.monotonic() < until and not self._end_requested:
            try:
                content = await self._client.run(
                    self._client.read_object, place.bucket, place.prefix.rstrip("/")
                )
            except AwsError as error:
                self._report_error(error)
            if content is None:
                await asyncio.sleep(LOG_PAUSE)
        if content is None:
            if not self._end_requested:
                self._files.append_line(f"the log {url} is not there yet")
            return
        try:
            text = zlib.decompress(content, wbits=31).decode(errors="replace")
        except zlib.error as error:
            text = f"the log {url} cannot be read: {error}"
        self._files.append_line("\n".join(text.splitlines()[-_LOG_LINES:]))

    def _open_log(self, job_id: AwsJobIdT) -> OutputLog:
        if self._log is None:
            self._log = OutputLog(self.command, self._client, job_id.name)
        return self._log
