"""Local files of an attempt on Kubernetes: start, log and exit code."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.notebook import extract_notebook
from hyperplane.jobs.step_wrapper import PREFACE_SUFFIX
from hyperplane.platforms.kubernetes.errors import KubernetesError
from hyperplane.platforms.kubernetes.job_watcher import JobWatcher

#: Seconds to wait for the rest of a log after its container has ended.
LOG_SECONDS = 10.0
#: Number of requests for a whole log, and seconds between them.
LOG_ATTEMPTS, LOG_RETRY_SECONDS = 5, 2.0
#: Response of a kubelet, in place of the log, for a removed container.
_LOG_REMOVED = b"unable to retrieve container logs"


class AttemptFiles:
    """Files of one attempt on this machine; ``watcher`` provides the log."""

    def __init__(self, command: AttemptCommand, watcher: JobWatcher) -> None:
        self._command, self._watcher = command, watcher
        self._following: asyncio.Task[None] | None = None

    def exit_code(self) -> int | None:
        """Return the recorded exit code."""
        try:
            return int(self._command.file(".exit").read_text())
        except (OSError, ValueError):
            return None

    def end_time(self) -> float:
        """Return the end time of the container; 0 while it is unknown."""
        with suppress(OSError):
            return self._command.file(".exit").stat().st_mtime
        return 0.0

    def pod_name(self) -> str:
        """Return the name of the pod that runs the attempt; empty before the start."""
        try:
            return self._command.file(".pid").read_text()
        except OSError:
            return ""

    def record_start(self, pod: str, at: float) -> None:
        """Record which pod runs the attempt, and since when."""
        if not self.pod_name():
            # The log replaces the messages on why the attempt does not run yet.
            self._write(".log", self._preface())
            self._write(".pid", pod.encode(), at)

    def record_end(self, code: int, at: float | None = None) -> None:
        """Record how and when the attempt ended."""
        self._write(".exit", str(code).encode(), at)

    def write_status(self, message: str) -> None:
        """Write to the log why the attempt does not run yet, replacing the previous message."""
        self._write(".log", self._preface() + f"waiting for Kubernetes: {message}\n".encode())

    def append_line(self, message: str) -> None:
        """Append a line to the log."""
        with self._command.file(".log").open("a") as log:
            log.write(f"\n{message}\n")

    def follow(self, pod: str) -> None:
        """Copy the log of a pod as it is written; start over if the connection broke."""
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(self._follow(pod))

    async def _follow(self, pod: str) -> None:
        # After a broken connection or on a full disk, the whole log is fetched at the end.
        with suppress(KubernetesError, OSError), self._command.file(".log").open("wb", 0) as log:
            log.write(self._preface())
            async for part in self._watcher.follow_log(pod):
                log.write(part)

    def stop_following(self) -> None:
        """Stop copying the log."""
        if self._following is not None:
            self._following.cancel()
            self._following = None

    async def finish_log(self, seconds: float) -> None:
        """Wait up to ``seconds`` for the rest of the log, and stop copying it."""
        if self._following is not None:
            await asyncio.wait({self._following}, timeout=seconds)
        self.stop_following()
        self._extract_notebook()

    async def save_log(self, pod: str) -> None:
        """Fetch the whole log, and replace the copy unless that is longer."""
        if self._following is not None:
            await asyncio.wait({self._following}, timeout=LOG_SECONDS)
        self.stop_following()
        for _ in range(LOG_ATTEMPTS):
            text = await self._watcher.read_log(pod)
            if text is not None:
                log, whole_log = self._command.file(".log"), self._preface() + text
                if not text.startswith(_LOG_REMOVED) and len(whole_log) >= log.stat().st_size:
                    self._write(".log", whole_log)
                break
            await asyncio.sleep(LOG_RETRY_SECONDS)
        self._extract_notebook()

    def _preface(self) -> bytes:
        """Return the first lines of the log, which the pod does not have."""
        try:
            return self._command.file(PREFACE_SUFFIX).read_bytes()
        except OSError:
            return b""

    def _extract_notebook(self) -> None:
        """Move the executed notebook from the log to its file."""
        try:
            output = Path(self._command.file(".notebook").read_text())
            log = self._command.file(".log").read_bytes()
        except OSError:
            return
        text, notebook = extract_notebook(log)
        if text != log:
            self._write(".log", text)
        if notebook is not None:
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_bytes(notebook)

    def _write(self, suffix: str, content: bytes, at: float | None = None) -> None:
        """Write a file through a draft and a rename."""
        draft = self._command.file(f"{suffix}.draft")
        draft.write_bytes(content)
        if at is not None:
            os.utime(draft, (at, at))
        draft.replace(self._command.file(suffix))
