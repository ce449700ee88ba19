"""One attempt at a gang step on Kubernetes: the pods of an Indexed Job, which end together."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.kubernetes.gang_files import GangFiles
from hyperplane.jobs.runners.kubernetes.pod_process import Object, PodProcess
from hyperplane.jobs.runners.kubernetes.step_pod import CONTAINER
from hyperplane.platforms.kubernetes import pod_status
from hyperplane.platforms.kubernetes.job_watcher import JobSnapshot, JobWatcher

_INDEX = "batch.kubernetes.io/job-completion-index"


class GangProcess(PodProcess):
    """One attempt at a gang step; it ends with the first pod that fails."""

    def __init__(
        self, command: AttemptCommand, watcher: JobWatcher, created: float | None = None
    ) -> None:
        super().__init__(command, watcher, created)
        self._files: GangFiles = GangFiles(command, watcher)

    async def _check_finished(self) -> bool:
        snapshot = await self._get_snapshot()
        if snapshot is None:
            self._report_status(self._watcher.last_error)
            return False
        job, pods = snapshot.jobs.get(self._name), _by_index(snapshot.pods.get(self._name, []))
        if await self._record_end_of(pods):
            return True
        if job is None:
            return all(pod_status.has_finished(pod, CONTAINER) for pod in pods.values())
        if (end := pod_status.find_job_end(job)) is not None and not end.succeeded:
            self._files.append_line(f"Kubernetes ended the job: {end.message}")
            return True
        started = [pod_status.read_start_time(pod, CONTAINER) for pod in pods.values()]
        times = [each for each in started if each is not None]
        if len(times) == self._files.plan.size:
            self._files.record_start(self._name, max(times))
            for number, pod in pods.items():
                self._files.follow_process(number, pod["metadata"]["name"])
            return False
        return not self._files.pod_name() and await self._will_never_start(snapshot, pods)

    async def _record_end_of(self, pods: Mapping[int, Object]) -> bool:
        """Record the outcome if the gang has ended; return whether it has."""
        plan = self._files.plan
        ends = {
            number: end
            for number, pod in pods.items()
            if (end := pod_status.read_end(pod, CONTAINER)) is not None
        }
        failed = min(
            (number for number, end in ends.items() if end.code),
            key=lambda number: (ends[number].time or time.time(), number),
            default=None,
        )
        codes = {number: end.code for number, end in ends.items() if end.code is not None}
        is_complete = plan.is_complete(codes)
        lost = [number for number, end in ends.items() if end.code is None]
        if failed is None and not is_complete and not lost:
            return False
        names = {number: pod["metadata"]["name"] for number, pod in pods.items()}
        await self._files.save_logs(names, set(ends))
        if failed is None and not is_complete:
            text = ends[lost[0]].text
            self._files.append_line(f"Kubernetes ended the pod of {plan.name(lost[0])}: {text}")
            return True
        if failed is not None:
            end = ends[failed]
            if end.text:
                self._files.append_line(f"{plan.name(failed)}: {end.text}")
            self._files.write_failure(failed, codes[failed])
            self._files.record_end(codes[failed], end.time)
        else:
            self._files.record_end(0, max(end.time or 0.0 for end in ends.values()) or None)
        return True

    async def _will_never_start(self, snapshot: JobSnapshot, pods: Mapping[int, Object]) -> bool:
        waiting = [
            pod for pod in pods.values() if pod_status.read_start_time(pod, CONTAINER) is None
        ]
        if not waiting:
            self._report_status(pod_status.summarize([], self._list_warnings(snapshot)))
            return False
        stuck = (pod for pod in waiting if pod_status.find_pending_pod([pod], snapshot.events))
        return await self._will_not_start(snapshot, next(stuck, waiting[0]))


def _by_index(pods: list[Any]) -> dict[int, Object]:
    """Return the pods of an Indexed Job by their index; the oldest, if Kubernetes replaced one."""
    found: dict[int, Object] = {}
    for pod in pods:
        metadata = pod["metadata"]
        index = metadata.get("annotations", {}).get(_INDEX) or metadata["labels"].get(_INDEX)
        if index is not None:
            found.setdefault(int(index), pod)
    return found
