"""Local files of an attempt at a gang step on Kubernetes: one log of all its pods."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from hyperplane.clusters.gang_plan import TAIL_LINES, GangPlan, format_failure
from hyperplane.core.artifact_reports import split_reports
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.kubernetes.attempt_files import (
    LOG_ATTEMPTS,
    LOG_RETRY_SECONDS,
    LOG_SECONDS,
    AttemptFiles,
)
from hyperplane.jobs.runners.usage_lines import split_usage, sum_usage
from hyperplane.jobs.step_wrapper import USAGE_SUFFIX
from hyperplane.platforms.kubernetes.errors import KubernetesError
from hyperplane.platforms.kubernetes.job_watcher import JobWatcher

#: Suffix of the file with the plan of the gang.
PLAN_SUFFIX = ".gang"


class GangFiles(AttemptFiles):
    """Files of one attempt whose pods are the processes of a gang."""

    def __init__(self, command: AttemptCommand, watcher: JobWatcher) -> None:
        super().__init__(command, watcher)
        self.plan = GangPlan.from_json(command.file(PLAN_SUFFIX).read_text())
        self._copied: dict[int, int] = {}
        self._rests: dict[int, list[bytes]] = {}
        self._tails: dict[int, deque[bytes]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._reports: list[bytes] = []
        self._figures: list[bytes] = []

    def follow_process(self, number: int, pod: str) -> None:
        """Copy the lines of a pod as they are written, once."""
        if not self._tasks:
            # Another supervisor may have copied a part.
            self._write(".log", self._preface())
        if number not in self._tasks:
            self._tasks[number] = asyncio.create_task(self._follow_process(number, pod))

    async def _follow_process(self, number: int, pod: str) -> None:
        # After a broken connection the rest is fetched at the end.
        with suppress(KubernetesError, OSError):
            async for part in self._watcher.follow_log(pod):
                self._append(number, part)

    def _append(self, number: int, part: bytes) -> None:
        """Append the whole lines of a part to the log, with the name of the process before each."""
        self._copied[number] = self._copied.get(number, 0) + len(part)
        rests = self._rests.setdefault(number, [])
        rests.append(part)
        if b"\n" not in part:  # joined at the line's end only: a line may have thousands of parts
            return
        whole, end, rest = b"".join(rests).rpartition(b"\n")
        text, figures = split_usage(whole + end)
        *lines, _ = text.split(b"\n")
        if lines and not lines[-1]:  # perhaps the one before a report or the figures
            lines.pop()
            rest = b"\n" + rest
        self._rests[number] = [rest]
        lines, reports = split_reports(lines)
        self._reports += reports
        self._figures += figures
        name = self.plan.name(number)
        with self._command.file(".log").open("ab") as log:
            log.write(b"".join(f"{name} | ".encode() + line + b"\n" for line in lines))
        self._tails.setdefault(number, deque(maxlen=TAIL_LINES)).extend(lines)

    async def save_logs(self, pods: dict[int, str], ended: set[int]) -> None:
        """Append what the log lacks of all processes, of which some have ended."""
        for number in pods:
            self.follow_process(number, pods[number])
        awaited = {self._tasks[number] for number in ended}
        if awaited:
            await asyncio.wait(awaited, timeout=LOG_SECONDS)
        self.stop_following()
        for number, pod in sorted(pods.items()):
            text = await self._read_log(pod)
            if text is not None:
                self._append(number, text[self._copied.get(number, 0) :])
            if any(self._rests.get(number, ())):  # a last line without its end
                self._append(number, b"\n")
        self._extract()

    def extract_reports(self) -> None:
        """Write the reports of all processes on what they have saved to their file."""
        if self._reports:
            with suppress(OSError):  # a full disk: what was saved is not attached
                self.save_reports(self._reports)

    async def _read_log(self, pod: str) -> bytes | None:
        for _ in range(LOG_ATTEMPTS):
            text = await self._watcher.read_log(pod)
            if text is not None:
                return text
            await asyncio.sleep(LOG_RETRY_SECONDS)
        return None

    def extract_usage(self) -> None:
        """Write what the processes took to its file, if the logs have it."""
        if self._figures:
            with suppress(OSError):  # a full disk: the attempt has no figures
                self._write(USAGE_SUFFIX, sum_usage(self._figures).encode())

    def write_failure(self, number: int, code: int) -> None:
        """Append which process has failed, with its last lines."""
        lines = [line.decode("utf-8", "replace") for line in self._tails.get(number, ())]
        with self._command.file(".log").open("a", encoding="utf-8", errors="replace") as log:
            log.write(format_failure(self.plan.name(number), code, lines))

    def stop_following(self) -> None:
        """Stop copying the logs."""
        super().stop_following()
        for task in self._tasks.values():
            task.cancel()

    async def finish_log(self, seconds: float) -> None:
        """Wait up to ``seconds`` for the rest of the logs, and stop copying them."""
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=seconds)
        self.stop_following()
        self._extract()
