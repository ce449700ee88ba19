"""Local files of an attempt on Kubernetes: start, log and exit code."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.remote_attempt_files import RemoteAttemptFiles
from hyperplane.platforms.kubernetes.errors import KubernetesError
from hyperplane.platforms.kubernetes.job_watcher import JobWatcher

#: Seconds to wait for the rest of a log after its container has ended.
LOG_SECONDS = 10.0
#: Number of requests for a whole log, and seconds between them.
LOG_ATTEMPTS, LOG_RETRY_SECONDS = 5, 2.0
#: Response of a kubelet, in place of the log, for a removed container.
_LOG_REMOVED = b"unable to retrieve container logs"


class AttemptFiles(RemoteAttemptFiles):
    """Files of one attempt on this machine; ``watcher`` provides the log."""

    def __init__(self, command: AttemptCommand, watcher: JobWatcher) -> None:
        super().__init__(command, "Kubernetes")
        self._watcher = watcher
        self._following: asyncio.Task[None] | None = None

    def pod_name(self) -> str:
        """Return the name of the pod that runs the attempt; empty before the start."""
        return self.started_as()

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
        self._extract()

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
        self._extract()

    def _extract(self) -> None:
        """Move from the log what is not of the program: notebook, reports and figures."""
        self.extract_notebook()
        self.extract_reports()
        self.extract_usage()
