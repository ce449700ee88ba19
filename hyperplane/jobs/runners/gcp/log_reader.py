"""Logs of all attempts of a supervisor, read together from Cloud Logging.

Google allows 60 requests for entries in a minute to a project. One request therefore reads the
logs of many jobs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from hyperplane.jobs.runners.service_client import ServiceClient
from hyperplane.platforms.gcp.errors import GcpCredentialsError, GcpError, is_retryable
from hyperplane.platforms.gcp.session import GcpSession
from hyperplane.platforms.gcp.task_log import LogEntry, LogPosition, LogSource, read_page
from hyperplane.platforms.request_rate import RequestRate

#: Seconds between two readings of all logs, and maximum requests in a second.
READ_SECONDS, REQUEST_RATE = 3.0, 0.9
#: Seconds after the end of a container within which its last lines appear.
SETTLE_SECONDS = 15.0
#: Seconds for which the rest of a log is requested in spite of errors.
ERROR_SECONDS = 300.0
#: Seconds before the receipt of the last entry from which entries are read again, because those
#: received at about the same time may appear later.
_OVERLAP_SECONDS = 30.0


@dataclass
class _FollowedLog:
    """A log, where the next reading begins, and how far it was read."""

    write: Callable[[Sequence[LogEntry]], None]
    since: str = ""
    #: Id -> time of receipt of the entries since then.
    seen: dict[str, float] = field(default_factory=dict)
    #: Time, of ``time.monotonic()``, at which the last complete reading began.
    read_at: float = 0.0
    #: Time at which the last reading with new lines began.
    new_at: float = 0.0
    error: GcpError | None = None
    failing_since: float = 0.0

    def add(self, entries: Sequence[LogEntry]) -> bool:
        """Write the entries that are new; return whether there are any."""
        new = [entry for entry in entries if entry.id not in self.seen]
        if new:
            self.write(new)
            self.seen |= {entry.id: entry.received for entry in new}
        return bool(new)

    def advance(self) -> None:
        """Begin the next reading shortly before the last entry, after a complete reading."""
        start = max(self.seen.values(), default=0.0) - _OVERLAP_SECONDS
        if start > 0:
            self.since = datetime.fromtimestamp(start, UTC).isoformat().replace("+00:00", "Z")
            # One second more, because times are rounded.
            self.seen = {id_: at for id_, at in self.seen.items() if at >= start - 1}


class LogReader:
    """Reads the logs of jobs until each is finished; ``client`` runs the requests in threads."""

    def __init__(self, client: ServiceClient[Any], session: GcpSession, source: LogSource) -> None:
        self._client, self._session, self._source = client, session, source
        self._rate = RequestRate(REQUEST_RATE)
        self._logs: dict[str, _FollowedLog] = {}
        self._task: asyncio.Task[None] | None = None

    def follow(self, job: str, write: Callable[[Sequence[LogEntry]], None]) -> None:
        """Begin to read the log of a job, from its beginning; a second call has no effect.

        ``write`` is called with new entries.
        """
        if job in self._logs:
            return
        self._logs[job] = _FollowedLog(write)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._read_all())

    async def finish(self, job: str, is_patient: Callable[[], bool]) -> GcpError | None:
        """Wait until no further lines appear in the log of a job that has ended.

        Return the error if the log cannot be read, at once unless ``is_patient()``.
        """
        log, ended = self._logs[job], time.monotonic()
        try:
            while log.read_at - max(log.new_at, ended) < SETTLE_SECONDS:
                if self._task is not None and self._task.done() and not self._task.cancelled():
                    self._task.result()  # its error: no further line would ever be read
                failed_for = time.monotonic() - log.failing_since
                if log.error is not None and not (
                    is_patient() and failed_for < ERROR_SECONDS and _may_pass(log.error)
                ):
                    return log.error
                await asyncio.sleep(min(0.2, SETTLE_SECONDS))
        finally:
            del self._logs[job]
        return None

    def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()

    async def _read_all(self) -> None:
        while self._logs:
            jobs, most = list(self._logs), self._source.max_jobs
            for start in range(0, len(jobs), most):
                await self._read(jobs[start : start + most])
            await asyncio.sleep(READ_SECONDS)

    async def _read(self, jobs: list[str]) -> None:
        """Read the entries that some logs have now."""
        logs = {job: self._logs[job] for job in jobs if job in self._logs}
        positions = [LogPosition(job, log.since) for job, log in logs.items()]
        if not positions:
            return
        began, token, unwritten = time.monotonic(), "", set()
        while True:
            await asyncio.sleep(max(0.0, self._rate.reserve() - time.monotonic()))
            try:
                page = await self._client.run(
                    read_page, self._session, self._source, positions, token
                )
            except GcpError as error:
                for log in logs.values():
                    log.failing_since = log.failing_since if log.error else began
                    log.error = error
                return
            for job, log in logs.items():
                try:
                    if log.add([entry for entry in page.entries if entry.job == job]):
                        log.new_at = began
                except OSError:  # such as a full disk; the lines are read again
                    unwritten.add(job)
            token = page.token
            if not token:
                break
        for job, log in logs.items():
            log.read_at, log.error = began, None
            if job not in unwritten:
                log.advance()


def _may_pass(error: GcpError) -> bool:
    """Return whether a request may succeed later: also credentials are renewed."""
    return is_retryable(error) or isinstance(error, GcpCredentialsError)
