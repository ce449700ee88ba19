"""Copy of the log of a container, from CloudWatch to the file of its attempt."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.aws_batch.batch_client import BatchClient
from hyperplane.jobs.step_wrapper import PREFACE_SUFFIX
from hyperplane.platforms.aws.errors import AwsError
from hyperplane.platforms.aws.task_log import TaskLog

#: Seconds after the end of a container within which its last lines appear, and between requests.
SETTLE_SECONDS, RETRY_SECONDS = 6.0, 1.0


class BatchLog:
    """Copies the log of one attempt; the copy begins anew in each supervisor."""

    def __init__(self, command: AttemptCommand, client: BatchClient, group: str) -> None:
        self._command, self._client, self._group = command, client, group
        self._log: TaskLog | None = None

    async def copy_new(self, stream: str) -> bool:
        """Append the lines since the last call; return whether there were any."""
        is_first = self._log is None
        log = self._log = self._log or TaskLog(self._client.session, self._group, stream)
        try:
            text = await self._client.run(log.read_new)
        except AwsError:  # the lines are read by a later call
            if is_first:
                self._log = None
            return False
        if is_first:
            self._command.file(".log").write_bytes(self._preface())
        with self._command.file(".log").open("ab") as target:
            target.write(text)
        return bool(text)

    async def copy_rest(self, stream: str) -> None:
        """Append the last lines, which CloudWatch has some seconds after the end."""
        until = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < until:
            await asyncio.sleep(min(RETRY_SECONDS, SETTLE_SECONDS))
            if await self.copy_new(stream):
                until = time.monotonic() + SETTLE_SECONDS

    def _preface(self) -> bytes:
        """Return the first lines of the log, which the container does not have."""
        with suppress(OSError):
            return self._command.file(PREFACE_SUFFIX).read_bytes()
        return b""
