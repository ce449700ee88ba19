"""A runner and an exporter of another package; an attempt is a shell in a separate session."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import psutil

from hyperplane.core.errors import Fault, check
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.execution.resource_allocator import Demand, ResourceAllocator
from hyperplane.jobs.exporters.base import Document
from hyperplane.jobs.runners.base import SharedFilesystemMixin

ENTRY_POINTS = f"""\
[hyperplane.runners]
shell = {__name__}:ShellRunner
local = {__name__}:ShellRunner
[hyperplane.exporters]
words = {__name__}:WordsExporter
slurm = {__name__}:WordsExporter
"""
#: Writes its process ID, runs the arguments after the prefix, and writes their exit code.
_SCRIPT = """
prefix=$1; shift; trap : TERM
echo $$ > "$prefix.pid"
"$@" >> "$prefix.log" 2>&1
echo $? > "$prefix.draft"; mv "$prefix.draft" "$prefix.exit"
"""


class ShellProcess:
    """One attempt; its files are all that the next supervisor needs.

    ``child`` is the shell if it is a child of this process, else None.
    """

    def __init__(
        self, command: AttemptCommand, child: subprocess.Popen[bytes] | None = None
    ) -> None:
        self.command, self._child = command, child

    async def wait_until_running(self) -> None:
        while not (self.command.file(".pid").exists() or self.exit_code() is not None):
            await asyncio.sleep(0.02)

    async def wait(self) -> int | None:
        while self.exit_code() is None and self._is_alive():
            await asyncio.sleep(0.02)
        if self._child is not None:
            await asyncio.to_thread(self._child.wait)
        return self.exit_code()

    def exit_code(self) -> int | None:
        with suppress(OSError, ValueError):
            return int(self.command.file(".exit").read_text())
        return None

    def end_time(self) -> float:
        with suppress(OSError):
            return self.command.file(".exit").stat().st_mtime
        return 0.0

    async def end(self, grace: float) -> int | None:
        for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 30.0)):
            with suppress(OSError, ValueError):
                os.killpg(self._pid(), number)
            with suppress(TimeoutError):
                return await asyncio.wait_for(self.wait(), seconds)
        return self.exit_code()

    def _pid(self) -> int:
        return int(self.command.file(".pid").read_text())

    def _is_alive(self) -> bool:
        with suppress(OSError, ValueError, psutil.Error):
            return psutil.Process(self._pid()).status() != psutil.STATUS_ZOMBIE
        return False


class ShellRunner(SharedFilesystemMixin):
    """Runs steps in shells; the option ``shell`` names the program."""

    name: ClassVar[str] = "shell"

    def __init__(self, environment: Mapping[str, str], options: Mapping[str, Any]) -> None:
        super().__init__(environment, options)
        self._shell: str = options["shell"]

    @classmethod
    def resolve_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        wrong = [name for name in options if name != "shell"]
        check(
            Fault(f"runner_options.{name}", "", "unknown option; expected shell") for name in wrong
        )
        return {"shell": "sh", **options}

    def unavailable_reason(self) -> str:
        return "" if shutil.which(self._shell) else f"no {self._shell} on the PATH"

    def demand(self, capacity: ResourceAllocator, step: Any, memory_factor: float) -> Demand:
        return capacity.demand(step, memory_factor)

    def chunks_at_once(self, capacity: ResourceAllocator, step: Any, usual: int) -> int:
        return capacity.chunks_at_once(step, usual)

    async def start(self, command: AttemptCommand, step: Any, memory_factor: float) -> ShellProcess:
        command.attempt_prefix.parent.mkdir(parents=True, exist_ok=True)
        child = subprocess.Popen(
            [self._shell, "-c", _SCRIPT, "shell", str(command.attempt_prefix), *command.argv],
            env=dict(command.environment),
            cwd=command.folder,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        return ShellProcess(command, child)

    def reattach(self, command: AttemptCommand) -> ShellProcess:
        return ShellProcess(command)


@dataclass(frozen=True)
class WordsExporter:
    """Writes the words of each step to one file, after a prefix."""

    name: ClassVar[str] = "words"
    prefix: str = "run "

    def find_unsupported(self, pipeline: Any) -> list[Fault]:
        del pipeline
        return []

    def render(self, job: Any) -> list[Document]:
        lines = [f"{self.prefix}{' '.join(step.argv)}" for step in job.pipeline.steps]
        return [Document("words.txt", "\n".join(lines), "step")]
