"""One attempt on AWS Batch: watch its job until it has ended, and copy its log."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import suppress

from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.aws_batch.batch_client import BatchClient
from hyperplane.jobs.runners.aws_batch.batch_job_id import BatchJobId, read_job_id
from hyperplane.jobs.runners.aws_batch.batch_log import BatchLog
from hyperplane.jobs.runners.remote_attempt_files import RemoteAttemptFiles
from hyperplane.platforms.aws.errors import AwsError, is_invalid, is_retryable
from hyperplane.platforms.aws.job_status import (
    NEVER_STARTS,
    SUCCEEDED,
    BatchJobStatus,
    parse_job,
)

#: Seconds between polls.
POLL_SECONDS = 5.0
#: Seconds for which Batch must report that a job will never start.
NEVER_STARTS_SECONDS = 60.0
#: Seconds for which Batch must not have a job before it counts as lost: the answer to a submission
#: comes before the job is visible everywhere.
VANISHED_SECONDS = 60.0
#: Seconds between requests to end a job, and within which it must end after Batch has answered.
END_SECONDS, CONFIRM_SECONDS = 10.0, 300.0
#: Exit code of a step that can never run: a configuration error in sysexits.h.
CONFIGURATION_ERROR = 78
_SYSTEM = "AWS Batch"


class BatchProcess:
    """One attempt as a job of AWS Batch, or as a child of an array job."""

    def __init__(self, command: AttemptCommand, client: BatchClient, log_group: str) -> None:
        self.command, self._client = command, client
        self._files = RemoteAttemptFiles(command, _SYSTEM)
        self._log = BatchLog(command, client, log_group)
        self._job_id: BatchJobId | None = None
        self._finished = self._end_requested = False
        self._pending_text, self._pending_since = "", 0.0
        self._missing_since, self._problem = 0.0, ""
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
        """End the job and return its exit code.

        ``grace`` has no effect: Batch kills a container 30 seconds after SIGTERM.
        """
        del grace
        self._end_requested, self._log.is_patient = True, False
        requested, until = float("-inf"), time.monotonic() + CONFIRM_SECONDS
        error: AwsError | None = None
        while not await self._is_finished():
            job_id = self._read_id()
            if job_id is not None and job_id.id and time.monotonic() - requested > END_SECONDS:
                requested = time.monotonic()
                error = await self._client.terminate(job_id.task_id())
                if error is not None:
                    self._report_error(error)
                    if is_retryable(error):  # the job continues until Batch has the request
                        until = time.monotonic() + CONFIRM_SECONDS
            if time.monotonic() > until:
                name = job_id.name if job_id else ""
                reason = f": {error}" if error else ""
                self._files.append_line(
                    f"AWS Batch does not confirm that the step has ended{reason}; check job "
                    f"{name} in the console of AWS Batch"
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

    def _read_id(self) -> BatchJobId | None:
        if self._job_id is None or not self._job_id.id:
            self._job_id = read_job_id(self.command)
        return self._job_id

    async def _check_finished(self) -> bool:
        job_id = self._read_id()
        if job_id is None:
            return True  # it was not submitted
        if not job_id.id:
            return await self._find_submitted(job_id)
        job = await self._client.describe(job_id.task_id())
        if isinstance(job, AwsError):
            self._missing_since = 0.0
            self._report_error(job)
            return False
        if job is None:
            return await self._has_vanished(job_id)
        self._missing_since = 0.0
        return await self._check_status(job_id, parse_job(job))

    async def _find_submitted(self, job_id: BatchJobId) -> bool:
        """Search the job of a submission without an answer; return whether it was not accepted."""
        may_appear = job_id.may_appear()  # before the request: it may appear during it
        found = await self._client.find(job_id.queue, job_id.name)
        if isinstance(found, AwsError):
            self._report_error(found)
            return False
        if found:
            self._job_id = job_id.with_id(found)
            with suppress(OSError):  # on a full disk it is found by its name again
                self._job_id.write(self.command)
            return False
        text = f"no answer says whether job {job_id.name} was accepted"
        if may_appear:
            self._report_status(f"{text}; its name is searched in the list of jobs")
            return False
        if await self._is_other_account(job_id):
            return False
        self._files.append_line(f"{text}, and AWS Batch does not list it: the attempt is lost")
        return True

    async def _has_vanished(self, job_id: BatchJobId) -> bool:
        """Return whether Batch has not had the job for so long that it is lost.

        It is ended before, because the attempt is then repeated.
        """
        self._missing_since = self._missing_since or time.monotonic()
        if time.monotonic() - self._missing_since < VANISHED_SECONDS:
            return False
        if await self._is_other_account(job_id):
            return False
        if job_id.index is not None:
            array = await self._client.describe(job_id.id)
            if isinstance(array, AwsError):
                self._missing_since = 0.0
                self._report_error(array)
                return False
            if array is not None and not (status := parse_job(array)).has_ended:
                self._report_problem(
                    f"array {job_id.id} is {status.describe()}, without this chunk"
                )
                return False
        error = await self._client.terminate(job_id.task_id())
        # An answer that refuses the request, other than for a permission, is that it has no job.
        if error is not None and not is_invalid(error):
            self._report_error(error)
            return False
        self._files.append_line(f"AWS Batch has no job {job_id.task_id()}: the attempt is lost")
        return True

    async def _is_other_account(self, job_id: BatchJobId) -> bool:
        """Return whether the credentials are not of the account of a job, as far as it is known."""
        account = await self._client.account()
        if isinstance(account, AwsError):
            self._report_error(account)
            return True
        if account == job_id.account or not job_id.account:
            return False
        self._report_problem(
            f"job {job_id.name} is in account {job_id.account} of Amazon, but the credentials are "
            f"of account {account}; cancel the job, or continue it with the former credentials"
        )
        return True

    async def _check_status(self, job_id: BatchJobId, status: BatchJobStatus) -> bool:
        if status.started:
            self._files.record_start(job_id.task_id(), status.started)
        if status.log_stream and (status.started or status.has_ended):
            await self._log.copy_new(status.log_stream)
        if not status.has_ended:
            return await self._check_pending(job_id, status)
        if status.log_stream:
            await self._log.copy_rest(status.log_stream)
            if not self._files.extract_notebook() and status.state == SUCCEEDED:
                self._files.append_line("the executed notebook is not in the log of the container")
        self._record_end(status)
        return True

    async def _check_pending(self, job_id: BatchJobId, status: BatchJobStatus) -> bool:
        """Log why the job does not run yet; return whether it never will."""
        if self._files.started_as():
            return False
        text = f"job {job_id.task_id()} is {status.describe()}"
        self._report_status(text)
        if (
            not status.reason.startswith(NEVER_STARTS)
            or self._end_requested
            or time.monotonic() - self._pending_since < NEVER_STARTS_SECONDS
        ):
            return False
        error = await self._client.terminate(job_id.task_id())
        if error is not None:  # it may still start
            self._report_error(error)
            return False
        self._files.append_line(f"AWS Batch can never start {text}")
        self._files.record_end(CONFIGURATION_ERROR)
        return True

    def _report_status(self, text: str) -> None:
        """Write to the log why the attempt does not run yet, when that changes."""
        if text != self._pending_text:
            self._pending_text, self._pending_since = text, time.monotonic()
            if not self._files.started_as():
                self._files.write_status(text)

    def _report_error(self, error: AwsError) -> None:
        self._report_problem(f"a request to AWS Batch failed and is repeated: {error}")

    def _report_problem(self, text: str) -> None:
        """Append a line to the log, also while the attempt runs, when it changes."""
        if text != self._problem:
            self._problem = text
            self._files.append_line(text)

    def _record_end(self, status: BatchJobStatus) -> None:
        """Record the exit code; if there is none, log why Batch ended the job."""
        at = status.stopped or None
        if status.state == SUCCEEDED:
            self._files.record_end(0, at)
        elif status.is_lost:
            self._files.append_line(f"AWS Batch lost the machine of the job: {status.reason}")
        elif status.is_out_of_memory:
            self._files.append_line(
                f"{status.container_reason}: request more with resources.ram_gb, or set "
                "more_memory, the factor by which the memory grows after such a failure"
            )
            self._files.record_end(-signal.SIGKILL, at)
        elif status.exit_code is None or status.was_terminated:
            if not self._end_requested:
                self._files.append_line(f"AWS Batch ended the job: {status.describe()}")
            cannot_start = "CannotPull" in status.container_reason + status.reason
            self._files.record_end(CONFIGURATION_ERROR if cannot_start else 1, at)
        else:
            self._files.record_end(status.exit_code, at)
