"""One attempt at a gang step on Kubernetes: the pods of an Indexed Job, which end together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.kubernetes.gang_files import GangFiles
from hyperplane.jobs.runners.kubernetes.pod_process import (
    LOST_SECONDS,
    POLL_SECONDS,
    Object,
    PodProcess,
)
from hyperplane.jobs.runners.kubernetes.step_pod import CONTAINER
from hyperplane.jobs.runners.step_resources import grace_seconds
from hyperplane.platforms.kubernetes import pod_status
from hyperplane.platforms.kubernetes.job_watcher import JobSnapshot, JobWatcher
from hyperplane.platforms.kubernetes.pod_status import PodEnd

#: Seconds after the first failure in which the failures of other nodes arrive.
REPORT_SECONDS = 2.0
#: Most seconds between the time of an end that a process writes and that of Kubernetes.
_END_SECONDS = 10.0
_INDEX = "batch.kubernetes.io/job-completion-index"


class GangProcess(PodProcess):
    """One attempt at a gang step; it ends with the first pod that fails."""

    def __init__(
        self, command: AttemptCommand, watcher: JobWatcher, created: float | None = None
    ) -> None:
        super().__init__(command, watcher, created)
        self._files: GangFiles = GangFiles(command, watcher)
        self._ended_at: float | None = None

    async def _wait_for_end(self) -> None:
        """Wait for the end of all processes, whose files a retry may use."""
        until = time.monotonic() + grace_seconds() + LOST_SECONDS
        while time.monotonic() < until:
            snapshot = await self._get_snapshot()
            if snapshot is not None and self._has_ended(snapshot):
                return
            await asyncio.sleep(POLL_SECONDS)

    def _has_ended(self, snapshot: JobSnapshot) -> bool:
        pods = snapshot.pods.get(self._name, [])
        return super()._has_ended(snapshot) and all(
            pod_status.has_finished(pod, CONTAINER) for pod in pods
        )

    async def _check_finished(self) -> bool:
        snapshot = await self._get_snapshot()
        if snapshot is None:
            self._report_status(self._watcher.last_error)
            return False
        job, pods = snapshot.jobs.get(self._name), _by_index(snapshot.pods.get(self._name, []))
        ends = {
            number: end
            for number, pod in pods.items()
            if (end := pod_status.read_end(pod, CONTAINER)) is not None
        }
        codes = {number: end.code for number, end in ends.items() if end.code is not None}
        is_complete = self._files.plan.is_complete(codes)
        if is_complete or any(end.code != 0 for end in ends.values()):
            self._ended_at = self._ended_at or time.monotonic()
            waits = job is not None and time.monotonic() - self._ended_at < REPORT_SECONDS
            # A process that failed a moment earlier may be on a node that reports a moment later.
            if waits and not is_complete:
                return False
            names = {number: pod["metadata"]["name"] for number, pod in pods.items()}
            await self._files.save_logs(names, set(ends))
            self._record_outcome(pods, ends, codes)
            return True
        if job is None:
            return all(pod_status.has_finished(pod, CONTAINER) for pod in pods.values())
        job_end = pod_status.find_job_end(job)
        if job_end is not None and not job_end.succeeded:
            self._files.append_line(f"Kubernetes ended the job: {job_end.message}")
            return True
        started = [pod_status.read_start_time(pod, CONTAINER) for pod in pods.values()]
        times = [each for each in started if each is not None]
        if len(times) == self._files.plan.size:
            self._files.record_start(self._name, max(times))
            for number, pod in pods.items():
                self._files.follow_process(number, pod["metadata"]["name"])
            return False
        return not self._files.pod_name() and await self._will_never_start(snapshot, pods)

    def _record_outcome(
        self,
        pods: Mapping[int, Object],
        ends: Mapping[int, PodEnd],
        codes: dict[int, int],
    ) -> None:
        """Record how the gang has ended: with the process that failed first, or was lost."""
        plan = self._files.plan
        times = {number: _end_time(pods[number], end) for number, end in ends.items()}
        failed = min(
            (number for number, code in codes.items() if code),
            key=lambda number: (times[number], number),
            default=None,
        )
        # Others may fail because the primary has ended.
        if plan.is_complete(codes) and (failed is None or times[0] <= times[failed]):
            self._files.record_end(0, max(end.time or 0.0 for end in ends.values()) or None)
        elif failed is None:
            lost = next(number for number, end in ends.items() if end.code is None)
            text = ends[lost].text
            self._files.append_line(f"Kubernetes ended the pod of {plan.name(lost)}: {text}")
        else:
            end = ends[failed]
            if end.text:
                self._files.append_line(f"{plan.name(failed)}: {end.text}")
            self._files.write_failure(failed, codes[failed])
            self._files.record_end(codes[failed], end.time)

    async def _will_never_start(self, snapshot: JobSnapshot, pods: Mapping[int, Object]) -> bool:
        waiting = [
            pod for pod in pods.values() if pod_status.read_start_time(pod, CONTAINER) is None
        ]
        if not waiting:
            self._report_status(pod_status.summarize([], self._list_warnings(snapshot)))
            return False
        stuck = (pod for pod in waiting if pod_status.find_pending_pod([pod], snapshot.events))
        return await self._will_not_start(snapshot, next(stuck, waiting[0]))


def _end_time(pod: Object, end: PodEnd) -> float:
    """Return when a process ended: the time that it has written, else that of Kubernetes."""
    ended = pod_status.get_container_state(pod, CONTAINER).get("terminated", {})
    with suppress(ValueError):
        written = float(str(ended.get("message", "")).rpartition("\n")[2])
        # A program that was killed may have written another number.
        if end.time is None or abs(written - end.time) <= _END_SECONDS:
            return written
    return end.time or time.time()


def _by_index(pods: list[Any]) -> dict[int, Object]:
    """Return the pods of an Indexed Job by their index; the oldest, if Kubernetes replaced one."""
    found: dict[int, Object] = {}
    for pod in pods:
        metadata = pod["metadata"]
        index = metadata.get("annotations", {}).get(_INDEX) or metadata["labels"].get(_INDEX)
        if index is not None:
            found.setdefault(int(index), pod)
    return found
