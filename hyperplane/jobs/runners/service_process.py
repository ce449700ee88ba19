"""One attempt as a job of a service: watch the job until it has ended, and copy its log."""

from __future__ import annotations

import asyncio
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from hyperplane.core.errors.platforms import PlatformError
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.remote_attempt_files import RemoteAttemptFiles
from hyperplane.jobs.runners.service_client import JobIdT, ServiceClient

#: Seconds for which a service must not have a job before it counts as lost: the answer to a
#: creation comes before the job is visible everywhere.
VANISHED_SECONDS = 60.0
#: Seconds between requests to end a job.
END_SECONDS = 10.0
#: Exit code of a step that can never run: a configuration error in sysexits.h.
CONFIGURATION_ERROR = 78


class ServiceJobStatus(Protocol):
    """State of a job and its container."""

    @property
    def reason(self) -> str:
        """Why the job is in its state; may be empty."""
        ...

    @property
    def container_reason(self) -> str:
        """Why the container ended; may be empty."""
        ...

    @property
    def exit_code(self) -> int | None:
        """Exit code of the container, negative for a signal; None if there is none."""
        ...

    @property
    def started(self) -> float:
        """Time in seconds since 1970; 0 before."""
        ...

    @property
    def stopped(self) -> float:
        """Time in seconds since 1970; 0 before."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended."""
        ...

    @property
    def has_succeeded(self) -> bool:
        """Whether the job has ended without an error."""
        ...

    @property
    def is_out_of_memory(self) -> bool:
        """Whether the container was ended for its memory."""
        ...

    @property
    def is_lost(self) -> bool:
        """Whether the machine was lost or reclaimed, so that the job can be repeated."""
        ...

    @property
    def was_terminated(self) -> bool:
        """Whether the service or a user ended it, not its program."""
        ...

    def describe(self) -> str:
        """Return the state with its reasons, in one line."""
        ...


StatusT = TypeVar("StatusT", bound=ServiceJobStatus)


class ServiceProcess(ABC, Generic[JobIdT, StatusT]):
    """One attempt as a job of a service.

    Subclasses copy the log and the executed notebook, and may add reasons why a job that the
    service does not list is not lost.

    Parameters
    ----------
    command : AttemptCommand
        The command of the attempt, with the paths of its files.
    client : ServiceClient
        Client of the requests.
    job_id_type : type
        Class of the id that is stored beside the files.
    parse : callable
        Takes a job in the form of the service, and returns its status.
    """

    #: Seconds between polls.
    poll_seconds: ClassVar[float]
    #: Seconds within which a job must end after the service has answered.
    confirm_seconds: ClassVar[float]
    #: Name of the platform in messages on requests and its console.
    platform: ClassVar[str]

    def __init__(
        self,
        command: AttemptCommand,
        client: ServiceClient[JobIdT],
        job_id_type: type[JobIdT],
        parse: Callable[[Mapping[str, Any]], StatusT],
    ) -> None:
        self.command, self._client = command, client
        self._job_id_type, self._parse = job_id_type, parse
        self._system = client.errors.system
        self._files = RemoteAttemptFiles(command, self._system)
        self._job_id: JobIdT | None = None
        self._finished = self._end_requested = False
        self._pending_text, self._pending_since = "", 0.0
        self._missing_since, self._problem = 0.0, ""
        self._lock = asyncio.Lock()

    @abstractmethod
    async def _copy_log(self, job_id: JobIdT, status: StatusT) -> None:
        """Copy new lines of the log, or begin to."""

    @abstractmethod
    async def _copy_results(self, job_id: JobIdT, status: StatusT) -> None:
        """Copy the rest of the log and the executed notebook of a job that has ended."""

    async def _clean_up(self) -> None:
        """Remove what the service keeps of a job that has ended."""

    async def _may_exist(self, job_id: JobIdT) -> bool:
        """Return whether a job that the service does not list may run in spite of that."""
        del job_id
        return False

    def exit_code(self) -> int | None:
        """Return the recorded exit code."""
        return self._files.exit_code()

    def end_time(self) -> float:
        """Return the end time of the container; 0 if unknown."""
        return self._files.end_time()

    async def wait_until_running(self) -> None:
        """Wait until the container runs, or will never run."""
        while not await self._is_finished() and not self._files.started_as():
            await asyncio.sleep(self.poll_seconds)

    async def wait(self) -> int | None:
        """Wait for the end; return the exit code, None if there is none."""
        while not await self._is_finished():
            await asyncio.sleep(self.poll_seconds)
        return self.exit_code()

    async def end(self, grace: float) -> int | None:
        """End the job and return its exit code.

        ``grace`` has no effect: the service decides when it kills a container.
        """
        del grace
        self._end_requested = True
        requested, until = float("-inf"), time.monotonic() + self.confirm_seconds
        error: PlatformError | None = None
        while not await self._is_finished():
            job_id = self._read_id()
            if job_id is not None and job_id.id and time.monotonic() - requested > END_SECONDS:
                requested = time.monotonic()
                error = await self._client.end(job_id)
                if error is not None:
                    self._report_error(error)
                    # The job continues until the service has the request.
                    if self._client.errors.is_retryable(error):
                        until = time.monotonic() + self.confirm_seconds
            if time.monotonic() > until:
                name = job_id.name if job_id else ""
                reason = f": {error}" if error else ""
                self._files.append_line(
                    f"{self._system} does not confirm that the step has ended{reason}; check job "
                    f"{name} in the console of {self.platform}"
                )
                break
            await asyncio.sleep(min(self.poll_seconds, 1.0))
        return self.exit_code()

    async def _is_finished(self) -> bool:
        """Poll; return whether the attempt is finished. Its exit code, if any, is then recorded."""
        async with self._lock:
            if not self._finished and (
                self.exit_code() is not None or await self._check_finished()
            ):
                await self._clean_up()
                self._finished = True
            return self._finished

    def _read_id(self) -> JobIdT | None:
        if self._job_id is None or not self._job_id.id:
            self._job_id = self._job_id_type.read(self.command)
        return self._job_id

    async def _check_finished(self) -> bool:
        job_id = self._read_id()
        if job_id is None:
            return True  # it was not created
        if not job_id.id:
            return await self._find_created(job_id)
        job = await self._client.describe(job_id)
        if isinstance(job, PlatformError):
            self._missing_since = 0.0
            self._report_error(job)
            return False
        if job is None:
            return await self._has_vanished(job_id)
        self._missing_since = 0.0
        try:
            status = self._parse(job)
        except PlatformError as error:  # a damaged answer, such as of a proxy
            self._report_error(error)
            return False
        return await self._check_status(job_id, status)

    async def _find_created(self, job_id: JobIdT) -> bool:
        """Search a job whose creation had no answer; return whether there is none."""
        may_appear = job_id.may_appear()  # before the request: it may appear during it
        found = await self._client.find(job_id)
        if isinstance(found, PlatformError):
            self._report_error(found)
            return False
        if found:
            self._job_id = job_id.with_id(found)
            with suppress(OSError):  # on a full disk it is found by its name again
                self._job_id.write(self.command)
            return False
        text = f"no answer says whether job {job_id.name} was created"
        if may_appear:
            self._report_status(f"{text}; its name is searched in the list of jobs")
            return False
        if await self._may_exist(job_id):
            return False
        self._files.append_line(f"{text}, and {self._system} does not list it: the attempt is lost")
        return True

    async def _has_vanished(self, job_id: JobIdT) -> bool:
        """Return whether the service has not had the job for so long that it is lost.

        It is ended before, because the attempt is then repeated.
        """
        self._missing_since = self._missing_since or time.monotonic()
        if time.monotonic() - self._missing_since < VANISHED_SECONDS:
            return False
        if await self._may_exist(job_id):
            return False
        error = await self._client.end(job_id)
        # An answer that refuses the request, other than for a permission, is that it has no job.
        if error is not None and not self._client.errors.is_invalid(error):
            self._report_error(error)
            return False
        self._files.append_line(
            f"{self._system} has no job {job_id.task_id()}: the attempt is lost"
        )
        return True

    async def _check_status(self, job_id: JobIdT, status: StatusT) -> bool:
        if status.started:
            self._files.record_start(job_id.task_id(), status.started)
        await self._copy_log(job_id, status)
        if not status.has_ended:
            return not self._files.started_as() and await self._check_pending(job_id, status)
        await self._copy_results(job_id, status)
        self._files.extract_reports()
        self._files.extract_usage()
        self._record_end(status)
        return True

    async def _check_pending(self, job_id: JobIdT, status: StatusT) -> bool:
        """Log why the job does not run yet; return whether it never will."""
        self._report_status(f"job {job_id.task_id()} is {status.describe()}")
        return False

    def _report_status(self, text: str) -> None:
        """Write to the log why the attempt does not run yet, when that changes."""
        if text != self._pending_text:
            self._pending_text, self._pending_since = text, time.monotonic()
            if not self._files.started_as():
                self._files.write_status(text)

    def _report_error(self, error: PlatformError) -> None:
        self._report_problem(f"a request to {self.platform} failed and is repeated: {error}")

    def _report_problem(self, text: str) -> None:
        """Append a line to the log, also while the attempt runs, when it changes."""
        if text != self._problem:
            self._problem = text
            self._files.append_line(text)

    def _record_end(self, status: StatusT) -> None:
        """Record the exit code; if there is none, log why the service ended the job."""
        at = status.stopped or None
        if status.has_succeeded:
            self._files.record_end(0, at)
        elif status.is_lost:
            self._files.append_line(f"{self._system} lost the machine of the job: {status.reason}")
        elif status.is_out_of_memory:
            self._files.append_line(
                f"{status.container_reason}: request more with resources.ram_gb, or set "
                "more_memory, the factor by which the memory grows after such a failure"
            )
            self._files.record_end(-signal.SIGKILL, at)
        else:
            self._record_failure(status)

    def _record_failure(self, status: StatusT, ended_code: int = 1) -> None:
        """Record the exit code of the program, or one if the service or a user ended it."""
        code = status.exit_code
        if code is None or status.was_terminated:
            code = ended_code
            if not self._end_requested:
                self._files.append_line(f"{self._system} ended the job: {status.describe()}")
        self._files.record_end(code, status.stopped or None)
