"""Copy of what the program of a driver prints, from objects of a bucket to its attempt's file."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.driver_client import DriverClient
from hyperplane.jobs.step_wrapper import PREFACE_SUFFIX
from hyperplane.platforms.aws.errors import AwsError

#: Maximum seconds that a call takes while the program runs: it delays the next look at the run.
_COPY_SECONDS = 1.0


class OutputLog:
    """Copies the output of one attempt; the copy begins anew in each supervisor."""

    def __init__(self, command: AttemptCommand, client: DriverClient[Any], name: str) -> None:
        self._command, self._client, self._name = command, client, name
        self._number = 0

    async def copy_new(self) -> None:
        """Append new lines; those that cannot be read now are read by a later call."""
        until = time.monotonic() + _COPY_SECONDS
        with suppress(AwsError):
            while time.monotonic() < until:
                text = await self._client.run(self._client.read_output, self._name, self._number)
                if text is None:
                    return
                self._append(text)

    async def copy_rest(self, *, is_patient: bool) -> str:
        """Append the last lines; return why they cannot be read, empty if they are.

        Unless it is patient, requests are not repeated.
        """
        read = self._client.repeat if is_patient else self._client.run
        try:
            while (
                text := await read(self._client.read_output, self._name, self._number)
            ) is not None:
                self._append(text)
        except (OSError, AwsError) as error:
            return str(error)
        return ""

    def _append(self, text: bytes) -> None:
        """Append a part. The position changes with the file: a cancelled call loses no lines."""
        if self._number == 0:
            preface = b""
            with suppress(OSError):
                preface = self._command.file(PREFACE_SUFFIX).read_bytes()
            self._command.file(".log").write_bytes(preface)
        with self._command.file(".log").open("ab") as target:
            target.write(text)
        self._number += 1
