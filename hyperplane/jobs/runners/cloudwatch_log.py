"""Copy of the log of a container, from CloudWatch to the file of its attempt."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from typing import Any

from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.aws_client import AwsClient
from hyperplane.jobs.step_wrapper import PREFACE_SUFFIX
from hyperplane.platforms.aws.errors import AwsCredentialsError, AwsError, is_retryable
from hyperplane.platforms.aws.task_log import TaskLog

#: Seconds after the end of a container within which its last lines appear, and between requests.
SETTLE_SECONDS, RETRY_SECONDS = 6.0, 1.0
#: Seconds for which the rest of a log is requested in spite of errors, and the longest pause.
ERROR_SECONDS, MAX_PAUSE_SECONDS = 300.0, 10.0
#: Maximum seconds that a call takes while the container runs: it delays the next look at the job.
_COPY_SECONDS = 1.0


class CloudWatchLog:
    """Copies the log of one attempt; the copy begins anew in each supervisor."""

    def __init__(self, command: AttemptCommand, client: AwsClient[Any], group: str) -> None:
        self._command, self._client, self._group = command, client, group
        #: Position after the lines that are in the file; None before the first.
        self._token: str | None = None
        #: Time from which the next request may be sent; None if it is not reserved.
        self._turn: float | None = None
        self._reported = ""
        #: Whether errors are waited for at the end; not for an attempt that is cancelled.
        self.is_patient = True

    async def copy_new(self, stream: str) -> None:
        """Append new lines, unless many other attempts have requested theirs before."""
        if self._reserve() <= time.monotonic():
            try:
                await self._copy(stream, time.monotonic() + _COPY_SECONDS)
            except AwsError as error:  # the lines are read by a later call
                if not _may_pass(error):
                    self._report(error)

    async def copy_rest(self, stream: str) -> None:
        """Append the last lines, which CloudWatch has some seconds after the end.

        If they cannot be read, the reason is appended.
        """
        quiet_since = failing_since = time.monotonic()
        pause = shortest = min(RETRY_SECONDS, SETTLE_SECONDS)
        while True:
            await asyncio.sleep(max(pause, self._reserve() - time.monotonic()))
            asked = time.monotonic()
            try:
                has_new = await self._copy(stream, math.inf)
            except AwsError as error:
                is_over = asked - failing_since >= ERROR_SECONDS
                if is_over or not self.is_patient or not _may_pass(error):
                    self._report(error)
                    return
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
                continue
            failing_since, pause = asked, shortest
            if has_new:
                quiet_since = time.monotonic()
            elif asked - quiet_since >= SETTLE_SECONDS:
                return

    def _reserve(self) -> float:
        """Return the time from which the next request of this attempt may be sent."""
        if self._turn is None:
            self._turn = self._client.log_requests.reserve()
        return self._turn

    async def _copy(self, stream: str, until: float) -> bool:
        """Append the lines that there are, as far as requests may be sent until a time.

        Return whether there were any.
        """
        log, has_new = TaskLog(self._client.session, self._group, stream), False
        while self._reserve() <= until:
            await asyncio.sleep(max(0.0, self._reserve() - time.monotonic()))
            self._turn = None
            page = await self._client.run(log.read_page, self._token)
            if page is None:
                break
            # The position changes with the file: a call that is cancelled loses no lines.
            if self._token is None:
                self._command.file(".log").write_bytes(self._preface())
            with self._command.file(".log").open("ab") as target:
                target.write(page.text)
            self._token = page.token
            has_new = has_new or bool(page.text)
            if page.is_last:
                break
        return has_new

    def _report(self, error: AwsError) -> None:
        """Append the reason why the log cannot be read, unless that was the last one."""
        if str(error) != self._reported:
            self._reported = str(error)
            with self._command.file(".log").open("a", encoding="utf-8", errors="replace") as target:
                target.write(f"\nthe log of the container cannot be read: {error}\n")

    def _preface(self) -> bytes:
        """Return the first lines of the log, which the container does not have."""
        with suppress(OSError):
            return self._command.file(PREFACE_SUFFIX).read_bytes()
        return b""


def _may_pass(error: AwsError) -> bool:
    """Return whether a request may succeed later: also credentials are renewed."""
    return is_retryable(error) or isinstance(error, AwsCredentialsError)
