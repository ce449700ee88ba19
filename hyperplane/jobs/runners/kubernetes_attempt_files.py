"""What is kept here of an attempt on Kubernetes: when it began, what it wrote, how it ended."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

from hyperplane.errors import EngineError
from hyperplane.jobs.notebook import extract_notebook
from hyperplane.jobs.processes import Command
from hyperplane.jobs.runners.kubernetes_watcher import JobWatcher
from hyperplane.jobs.step_wrapper import PREFACE_SUFFIX

#: Seconds in which the rest of a log comes when its container has ended.
LOG_SECONDS = 10.0
#: How often all of a log is asked for, and seconds between.
LOG_ATTEMPTS, LOG_RETRY_SECONDS = 5, 2.0
#: What a kubelet says, as if it were the log, of a container that is removed already.
_LOG_REMOVED = b"unable to retrieve container logs"


class AttemptFiles:
    """The traces of one attempt.

    Parameters
    ----------
    command : Command
        The attempt.
    watch : Watch
        From whom its log comes.
    """

    def __init__(self, command: Command, watcher: JobWatcher) -> None:
        self._command, self._watcher = command, watcher
        self._following: asyncio.Task[None] | None = None

    def exit_code(self) -> int | None:
        """What was written down of its end."""
        try:
            return int(self._command.file(".exit").read_text())
        except (OSError, ValueError):
            return None

    def end_time(self) -> float:
        """When its container ended; 0 while that is not known."""
        with suppress(OSError):
            return self._command.file(".exit").stat().st_mtime
        return 0.0

    def pod_name(self) -> str:
        """The pod that has begun it; empty while none has."""
        try:
            return self._command.file(".pid").read_text()
        except OSError:
            return ""

    def record_start(self, pod: str, at: float) -> None:
        """Write down which pod has begun it, and when."""
        if not self.pod_name():
            # Words on why it does not run yet make room for its own.
            self._write(".log", self._preface())
            self._write(".pid", pod.encode(), at)

    def record_end(self, code: int, at: float | None = None) -> None:
        """Write down how it has ended, and when."""
        self._write(".exit", str(code).encode(), at)

    def write_status(self, words: str) -> None:
        """Say why it does not run yet, in place of what was said before."""
        self._write(".log", self._preface() + f"waiting for Kubernetes: {words}\n".encode())

    def append_line(self, words: str) -> None:
        """A line at the end of its log."""
        with self._command.file(".log").open("a") as log:
            log.write(f"\n{words}\n")

    def follow(self, pod: str) -> None:
        """Keep what it writes as it comes; from its beginning, if that broke off."""
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(self._follow(pod))

    async def _follow(self, pod: str) -> None:
        # A log that broke off, or a full disk: all of it is asked for at the end.
        with suppress(EngineError, OSError), self._command.file(".log").open("wb", 0) as log:
            log.write(self._preface())
            async for part in self._watcher.follow(pod):
                log.write(part)

    def stop_following(self) -> None:
        """Leave its log as it is."""
        if self._following is not None:
            self._following.cancel()
            self._following = None

    async def finish_log(self, seconds: float) -> None:
        """Wait for what is on its way."""
        if self._following is not None:
            await asyncio.wait({self._following}, timeout=seconds)
        self.stop_following()
        self._extract_notebook()

    async def save_log(self, pod: str) -> None:
        """All that it has written, if what was followed is less."""
        if self._following is not None:
            await asyncio.wait({self._following}, timeout=LOG_SECONDS)
        self.stop_following()
        for _ in range(LOG_ATTEMPTS):
            text = await self._watcher.read_log(pod)
            if text is not None:
                log, whole = self._command.file(".log"), self._preface() + text
                if not text.startswith(_LOG_REMOVED) and len(whole) >= log.stat().st_size:
                    self._write(".log", whole)
                break
            await asyncio.sleep(LOG_RETRY_SECONDS)
        self._extract_notebook()

    def _preface(self) -> bytes:
        """What the log begins with; the pod knows nothing of it."""
        try:
            return self._command.file(PREFACE_SUFFIX).read_bytes()
        except OSError:
            return b""

    def _extract_notebook(self) -> None:
        """Take the executed notebook out of the log, and write it where it is looked for."""
        try:
            output = Path(self._command.file(".notebook").read_text())
            log = self._command.file(".log").read_bytes()
        except OSError:
            return
        rest, found = extract_notebook(log)
        if rest != log:
            self._write(".log", rest)
        if found is not None:
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_bytes(found)

    def _write(self, suffix: str, content: bytes, at: float | None = None) -> None:
        """A file that is there with all of it or not at all."""
        draft = self._command.file(f"{suffix}.draft")
        draft.write_bytes(content)
        if at is not None:
            os.utime(draft, (at, at))
        draft.replace(self._command.file(suffix))
