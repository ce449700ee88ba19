"""One attempt on Kubernetes: watch its pod until it has ended, then delete its Job."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from hyperplane.jobs.processes import AttemptCommand
from hyperplane.jobs.runners.kubernetes.attempt import (
    CONTAINER,
    JOB_LABEL,
    attempt_job_name,
    owning_job_id,
)
from hyperplane.jobs.runners.kubernetes.attempt_files import AttemptFiles
from hyperplane.platforms.kubernetes import pod_status
from hyperplane.platforms.kubernetes.job_watcher import JobSnapshot, JobWatcher

#: Seconds between polls.
POLL_SECONDS = 1.0
#: Seconds between messages in the log on why a pod does not run yet.
STATUS_SECONDS = 15.0
#: Seconds between deletion requests, and their maximum number.
DELETE_SECONDS, DELETE_ATTEMPTS = 10.0, 12
#: Seconds for which a pod must report that it cannot run, by reason; registries may be busy.
STUCK = {"ErrImageNeverPull": 0.0, "InvalidImageName": 0.0, "ImagePullBackOff": 120.0}
STUCK_DEFAULT = 20.0
#: Seconds after which a deleted pod of unknown outcome counts as lost.
LOST_SECONDS = 300.0
#: Exit code of a step that can never run: a configuration error in sysexits.h.
CONFIGURATION_ERROR = 78
#: Exit code of a container that cannot be started, and that of a shell in this case.
NOT_STARTED, COMMAND_NOT_FOUND = 128, 127

Object = Mapping[str, Any]


class PodProcess:
    """One attempt as a Kubernetes Job.

    Parameters
    ----------
    command : AttemptCommand
        Its command.
    watcher : JobWatcher
        Source of the objects' state.
    created : float or None
        Monotonic time at which its Job and Secret were created, if that is certain.
    """

    def __init__(
        self, command: AttemptCommand, watcher: JobWatcher, created: float | None = None
    ) -> None:
        self.command, self._watcher, self._created = command, watcher, created
        self._name, self._files = attempt_job_name(command), AttemptFiles(command, watcher)
        self._began = self._last_status = time.monotonic()
        self._stuck: float | None = None
        self._finished = False

    def exit_code(self) -> int | None:
        """Return the recorded exit code."""
        return self._files.exit_code()

    def end_time(self) -> float:
        """Return when its container ended, 0 if unknown."""
        return self._files.end_time()

    async def wait_until_running(self) -> None:
        """Return when its container runs, or will never run."""
        while (
            self.exit_code() is None
            and not await self._is_finished()
            and not self._files.pod_name()
        ):
            await asyncio.sleep(POLL_SECONDS)

    async def wait(self) -> int | None:
        """Wait for the end, delete the Job, and return the exit code, None if it left none."""
        try:
            while self.exit_code() is None and not await self._is_finished():
                await asyncio.sleep(POLL_SECONDS)
        finally:
            self._files.stop_following()
        await self.delete_job()
        return self.exit_code()

    async def delete_job(self) -> None:
        """Delete its Job; without a response, Kubernetes removes the Job after its TTL."""
        for _ in range(DELETE_ATTEMPTS):
            if await self._watcher.delete(self._name):
                return
            await asyncio.sleep(DELETE_SECONDS)

    async def end(self, grace: float) -> int | None:
        """Delete its Job, whose pod gets SIGTERM and later SIGKILL; return the exit code."""
        requested, until = float("-inf"), time.monotonic() + grace + LOST_SECONDS
        while True:
            if time.monotonic() - requested > DELETE_SECONDS:
                requested = time.monotonic()
                await self._watcher.delete(self._name)
            over, snapshot = await self._is_finished(), await self._get_snapshot()
            if over and snapshot is not None and self._name not in snapshot.jobs:
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

    async def _get_snapshot(self) -> JobSnapshot | None:
        labels = f"{JOB_LABEL}={owning_job_id(self.command)}"
        return await self._watcher.get_snapshot(labels, self._created or float("-inf"))

    async def _is_finished(self) -> bool:
        """Poll; return whether the attempt is finished, with its exit code recorded."""
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
            return all(_has_finished(one) for one in pods)
        for condition in job.get("status", {}).get("conditions") or ():
            if condition["status"] == "True" and condition["type"] in ("Complete", "Failed"):
                return self._finish_without_pod(condition)
        if self._files.pod_name():
            self._files.append_line("Kubernetes ended the pod: it was deleted")
            return True
        self._report_status(pod_status.summary([], self._list_warnings(snapshot)))
        return False

    def _find_own_pod(self, pods: Sequence[Object]) -> Object | None:
        """Return the pod that runs the attempt, or before that the one that will."""
        if name := self._files.pod_name():
            # A replacement created by Kubernetes would be another attempt.
            return next((pod for pod in pods if pod["metadata"]["name"] == name), None)
        begun = (pod for pod in pods if _container_state(pod).keys() - {"waiting"})
        return next(begun, pods[-1] if pods else None)

    def _finish_without_pod(self, condition: Object) -> bool:
        """Record the end from the Job, which has only the outcome of a deleted pod."""
        if condition["type"] == "Complete":
            self._files.append_line("the pod was deleted, and its log with it")
            self._files.record_end(0)
        else:
            message = condition.get("message") or condition.get("reason", "")
            self._files.append_line(f"Kubernetes ended the job: {message}")
        return True

    async def _check_pod(self, snapshot: JobSnapshot, pod: Object) -> bool:
        state, name = _container_state(pod), pod["metadata"]["name"]
        if started := (state.get("running") or state.get("terminated") or {}).get("startedAt"):
            self._files.record_start(name, _parse_time(started))
        if state.get("running"):
            self._files.follow(name)
        ended = state.get("terminated")
        if ended is None and pod["status"].get("phase") != "Failed":
            requested = pod["metadata"].get("deletionTimestamp")
            if requested and time.time() - _parse_time(requested) > LOST_SECONDS:
                self._files.append_line(
                    f"node {pod['spec'].get('nodeName')} does not answer: it is lost"
                )
                return True
            return not self._files.pod_name() and await self._is_stuck(snapshot, pod)
        await self._files.save_log(name)
        self._record_exit(pod, ended)
        return True

    async def _is_stuck(self, snapshot: JobSnapshot, pod: Object) -> bool:
        """Whether the pod will not start."""
        self._report_status(pod_status.summary([pod], self._list_warnings(snapshot)))
        if self._created is None and time.monotonic() - self._began > STUCK_DEFAULT:
            # The supervisor may have been killed between the creation of Job and Secret.
            needed = f'"{self._name}"' in json.dumps(pod["spec"])
            if needed and await self._watcher.has_secret(self._name) is False:
                self._files.append_line(
                    "its Secret was not created, because the supervisor was killed"
                )
                return True
        stuck = pod_status.find_pending_pod([pod], snapshot.events)
        if stuck is None or f'secret "{self._name}" not found' in stuck.text:
            self._stuck = None
            return False
        self._stuck = self._stuck or time.monotonic()
        reasons = (seconds for reason, seconds in STUCK.items() if f" {reason}:" in stuck.text)
        if time.monotonic() - self._stuck < next(reasons, STUCK_DEFAULT):
            return False
        self._files.append_line(stuck.text)
        self._files.record_end(CONFIGURATION_ERROR)
        return True

    def _record_exit(self, pod: Object, ended: Object | None) -> None:
        """Record the exit code; none if Kubernetes ended the pod for other reasons."""
        disrupted = any(
            one["type"] == "DisruptionTarget" and one["status"] == "True"
            for one in pod["status"].get("conditions") or ()
        )
        code = None if ended is None else int(ended["exitCode"])
        if ended is None or (code and (disrupted or "deletionTimestamp" in pod["metadata"])):
            reason = pod["status"].get("reason") or "it was deleted"
            message = " ".join(str(pod["status"].get("message", "")).split())
            self._files.append_line(
                f"Kubernetes ended the pod: {reason}{': ' * bool(message)}{message}"
            )
            return
        if code and ended.get("reason") == "OOMKilled":
            self._files.append_line(
                "it needed more than the memory of its pod, "
                f"{pod_status.memory_of(pod, CONTAINER)}: ask "
                "for more in resources.ram_gb, or let it grow with more_memory"
            )
            code = -signal.SIGKILL
        elif code == NOT_STARTED and ended.get("message"):
            self._files.append_line(f"{ended.get('reason')}: {ended['message']}")
            code = COMMAND_NOT_FOUND
        elif code is not None and 128 < code <= 128 + signal.NSIG:
            code = 128 - code
        at = None
        with suppress(KeyError, ValueError):
            at = _parse_time(ended["finishedAt"])
        self._files.record_end(code or 0, at)

    def _list_warnings(self, snapshot: JobSnapshot) -> list[Object]:
        """Return warnings about its Job and its pod."""
        return pod_status.select_events(snapshot.events, self._name)

    def _report_status(self, status: str) -> None:
        """Log periodically why it does not run yet."""
        if (
            status
            and not self._files.pod_name()
            and time.monotonic() - self._last_status > STATUS_SECONDS
        ):
            self._last_status = time.monotonic()
            self._files.write_status(status)


def _container_state(pod: Object) -> dict[str, Any]:
    for status in pod.get("status", {}).get("containerStatuses") or ():
        if status["name"] == CONTAINER:
            stuck: dict[str, Any] = status.get("state", {})
            return stuck
    return {}


def _has_finished(pod: Object) -> bool:
    return "terminated" in _container_state(pod) or pod["status"].get("phase") in (
        "Succeeded",
        "Failed",
    )


def _parse_time(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
