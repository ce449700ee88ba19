"""One attempt on Kubernetes: watch its pod until it has ended, then delete its Job."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.attempt_names import attempt_job_name, owning_job_id
from hyperplane.jobs.runners.kubernetes.attempt_files import AttemptFiles
from hyperplane.jobs.runners.kubernetes.step_pod import CONTAINER, JOB_LABEL
from hyperplane.platforms.kubernetes import pod_status
from hyperplane.platforms.kubernetes.job_watcher import JobSnapshot, JobWatcher
from hyperplane.platforms.kubernetes.pod_status import JobEnd, PodEnd

#: Seconds between polls.
POLL_SECONDS = 1.0
#: Seconds between messages in the log on why a pod does not run yet.
STATUS_SECONDS = 15.0
#: Seconds between deletion requests, and their maximum number.
DELETE_SECONDS, DELETE_ATTEMPTS = 10.0, 12
#: Seconds after which a pod that reports a reason counts as unable to start; registries may be
#: busy.
PENDING_SECONDS = {"ErrImageNeverPull": 0.0, "InvalidImageName": 0.0, "ImagePullBackOff": 120.0}
DEFAULT_PENDING_SECONDS = 20.0
#: Seconds after which a Secret counts as missing if this supervisor did not create it.
SECRET_SECONDS = 20.0
#: Seconds after which a deleted pod of unknown outcome counts as lost.
LOST_SECONDS = 300.0
#: Exit code of a step that can never run: a configuration error in sysexits.h.
CONFIGURATION_ERROR = 78

Object = Mapping[str, Any]


class PodProcess:
    """One attempt as a Kubernetes Job.

    ``created`` is the monotonic time at which this supervisor has created Job and Secret; None if
    it is not certain that both exist.
    """

    def __init__(
        self, command: AttemptCommand, watcher: JobWatcher, created: float | None = None
    ) -> None:
        self.command, self._watcher, self._created = command, watcher, created
        self._name, self._files = attempt_job_name(command), AttemptFiles(command, watcher)
        self._began = self._last_status = time.monotonic()
        self._pending_since: float | None = None
        self._finished = False

    def exit_code(self) -> int | None:
        """Return the recorded exit code."""
        return self._files.exit_code()

    def end_time(self) -> float:
        """Return the end time of the container; 0 if unknown."""
        return self._files.end_time()

    async def wait_until_running(self) -> None:
        """Wait until the container runs, or will never run."""
        while (
            self.exit_code() is None
            and not await self._is_finished()
            and not self._files.pod_name()
        ):
            await asyncio.sleep(POLL_SECONDS)

    async def wait(self) -> int | None:
        """Wait for the end and delete the Job; return the exit code, None if there is none."""
        try:
            while self.exit_code() is None and not await self._is_finished():
                await asyncio.sleep(POLL_SECONDS)
        finally:
            self._files.stop_following()
        await self.delete_job()
        await self._wait_for_end()
        return self.exit_code()

    async def _wait_for_end(self) -> None:
        """Return at once: the pod of a deleted Job has ended."""

    async def delete_job(self) -> None:
        """Delete the Job; without a response, Kubernetes removes it after its TTL."""
        for _ in range(DELETE_ATTEMPTS):
            if await self._watcher.delete(self._name):
                return
            await asyncio.sleep(DELETE_SECONDS)

    async def end(self, grace: float) -> int | None:
        """Delete the Job, whose pod gets SIGTERM and later SIGKILL; return the exit code."""
        requested, until = float("-inf"), time.monotonic() + grace + LOST_SECONDS
        while True:
            if time.monotonic() - requested > DELETE_SECONDS:
                requested = time.monotonic()
                await self._watcher.delete(self._name)
            finished, snapshot = await self._is_finished(), await self._get_snapshot()
            if finished and snapshot is not None and self._has_ended(snapshot):
                break
            if time.monotonic() > until:
                self._files.append_line(
                    "Kubernetes does not confirm that the step has ended "
                    f"({self._watcher.last_error or 'its node does not respond'}); check with "
                    f"'kubectl get jobs,pods -l job-name={self._name}'"
                )
                break
            await asyncio.sleep(POLL_SECONDS)
        await self._files.finish_log(POLL_SECONDS)
        return self.exit_code()

    def _has_ended(self, snapshot: JobSnapshot) -> bool:
        """Return whether nothing of a deleted Job runs; its pod has finished."""
        return self._name not in snapshot.jobs

    async def _get_snapshot(self) -> JobSnapshot | None:
        labels = f"{JOB_LABEL}={owning_job_id(self.command)}"
        return await self._watcher.get_snapshot(labels, self._created or float("-inf"))

    async def _is_finished(self) -> bool:
        """Poll; return whether the attempt is finished. Its exit code, if any, is then recorded."""
        self._finished = self._finished or await self._check_finished()
        return self._finished

    async def _check_finished(self) -> bool:
        snapshot = await self._get_snapshot()
        if snapshot is None:
            self._report_status(self._watcher.last_error)
            return False
        job, pods = snapshot.jobs.get(self._name), snapshot.pods.get(self._name, [])
        if (pod := self._find_own_pod(pods)) is not None:
            return await self._check_pod(snapshot, pod)
        if job is None:
            return all(pod_status.has_finished(remaining, CONTAINER) for remaining in pods)
        if (end := pod_status.find_job_end(job)) is not None:
            return self._finish_without_pod(end)
        if self._files.pod_name():
            self._files.append_line("Kubernetes ended the pod: it was deleted")
            return True
        self._report_status(pod_status.summarize([], self._list_warnings(snapshot)))
        return False

    def _find_own_pod(self, pods: Sequence[Object]) -> Object | None:
        """Return the pod that runs the attempt; before the start, the one that will run it."""
        if name := self._files.pod_name():
            # A replacement created by Kubernetes would be another attempt.
            return next((pod for pod in pods if pod["metadata"]["name"] == name), None)
        begun = (
            pod
            for pod in pods
            if pod_status.get_container_state(pod, CONTAINER).keys() - {"waiting"}
        )
        return next(begun, pods[-1] if pods else None)

    def _finish_without_pod(self, end: JobEnd) -> bool:
        """Record the outcome of a deleted pod that the Job states: success or a message."""
        if end.succeeded:
            self._files.append_line("the pod was deleted, and its log with it")
            self._files.record_end(0)
        else:
            self._files.append_line(f"Kubernetes ended the job: {end.message}")
        return True

    async def _check_pod(self, snapshot: JobSnapshot, pod: Object) -> bool:
        name = pod["metadata"]["name"]
        if (started := pod_status.read_start_time(pod, CONTAINER)) is not None:
            self._files.record_start(name, started)
        if pod_status.get_container_state(pod, CONTAINER).get("running"):
            self._files.follow(name)
        if (end := pod_status.read_end(pod, CONTAINER)) is not None:
            await self._files.save_log(name)
            self._record_end(end)
            return True
        requested = pod_status.read_deletion_time(pod)
        if requested is not None and time.time() - requested > LOST_SECONDS:
            self._files.append_line(
                f"node {pod['spec'].get('nodeName')} does not respond: the attempt is lost"
            )
            return True
        return not self._files.pod_name() and await self._will_not_start(snapshot, pod)

    async def _will_not_start(self, snapshot: JobSnapshot, pod: Object) -> bool:
        """Whether the pod will never start; the reason is then in the log."""
        self._report_status(pod_status.summarize([pod], self._list_warnings(snapshot)))
        if self._created is None and time.monotonic() - self._began > SECRET_SECONDS:
            # An earlier supervisor may have been killed between the creation of Job and Secret,
            # or its request for the Secret may have failed.
            needed = f'"{self._name}"' in json.dumps(pod["spec"])
            if needed and await self._watcher.has_secret(self._name) is False:
                self._files.append_line(
                    "the Secret of this attempt was not created: the supervisor was killed, or its "
                    "request failed"
                )
                return True
        pending = pod_status.find_pending_pod([pod], snapshot.events)
        if pending is None or f'secret "{self._name}" not found' in pending.text:
            self._pending_since = None
            return False
        self._pending_since = self._pending_since or time.monotonic()
        limit = PENDING_SECONDS.get(pending.reason, DEFAULT_PENDING_SECONDS)
        if time.monotonic() - self._pending_since < limit:
            return False
        self._files.append_line(pending.text)
        self._files.record_end(CONFIGURATION_ERROR)
        return True

    def _record_end(self, end: PodEnd) -> None:
        """Record the exit code; if there is none, log why Kubernetes ended the pod."""
        if end.code is None:
            self._files.append_line(f"Kubernetes ended the pod: {end.text}")
            return
        if end.out_of_memory:
            self._files.append_line(
                f"{end.text}: request more with resources.ram_gb, or set more_memory, the factor "
                "by which the memory grows after such a failure"
            )
        elif end.text:
            self._files.append_line(end.text)
        self._files.record_end(end.code, end.time)

    def _list_warnings(self, snapshot: JobSnapshot) -> list[Object]:
        """Return the warnings of Kubernetes about the Job and the pod."""
        return pod_status.select_events(snapshot.events, self._name)

    def _report_status(self, status: str) -> None:
        """Log periodically why the pod does not run yet."""
        if (
            status
            and not self._files.pod_name()
            and time.monotonic() - self._last_status > STATUS_SECONDS
        ):
            self._last_status = time.monotonic()
            self._files.write_status(status)
