"""Reasons why pods do not run, and how containers and Jobs ended."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

Object = Mapping[str, Any]

_PROGRAM_ADVICE = "check that the image has the program on its PATH"


def build_setting_advice(locate: Callable[[str], str]) -> dict[str, str]:
    """Return the advice, by reason, that names settings; ``locate`` returns the key of one."""
    image = f"check {locate('image')}"
    return {
        "ImagePullBackOff": f"{image} and {locate('image_pull_secrets')}",
        "InvalidImageName": image,
        "CreateContainerConfigError": "build the image with a non-root USER, or set "
        f"{locate('run_as_user')}",
    }


#: Reasons for which a waiting container will never run -> advice.
ADVICE = {
    **build_setting_advice("hyperplane.engines.kubernetes.{}".format),
    "ErrImageNeverPull": "image_pull_policy is Never and the node does not have the image",
    "CreateContainerError": _PROGRAM_ADVICE,
    "RunContainerError": _PROGRAM_ADVICE,
    "CrashLoopBackOff": "see the last lines of its log",
}
OUT_OF_MEMORY = "OOMKilled"
#: Exit codes for a program that cannot be started: of the container runtime, and of a shell.
NOT_STARTED, COMMAND_NOT_FOUND = 128, 127


class PendingPod(NamedTuple):
    """A pod that waits for a reason for which it will never run.

    Parameters
    ----------
    pod, container : str
        Names of the pod and of the waiting container.
    reason : str
        A key of :data:`ADVICE`.
    text : str
        The reason, with advice.
    ran : bool
        Whether the container has run before, so that it has a log.
    """

    pod: str
    container: str
    reason: str
    text: str
    ran: bool


class PodEnd(NamedTuple):
    """How the container of a pod ended.

    Parameters
    ----------
    code : int or None
        Exit code of its program, negative for a signal; None if Kubernetes ended the pod.
    text : str
        The reason; empty if the program ended by itself.
    out_of_memory : bool
        Whether the kernel killed the program because of its memory.
    time : float or None
        Time of the end, if it is known.
    """

    code: int | None
    text: str = ""
    out_of_memory: bool = False
    time: float | None = None


class JobEnd(NamedTuple):
    """How a Job ended: whether it succeeded, and Kubernetes' message."""

    succeeded: bool
    message: str


def find_pending_pod(
    pods: Sequence[Object], events: Sequence[Object], advice: Mapping[str, str] | None = None
) -> PendingPod | None:
    """Return the first pod that will not run, or None if all may run later.

    ``advice`` overrides :data:`ADVICE`, and may have an entry for ``OUT_OF_MEMORY``.
    """
    all_advice = {**ADVICE, **(advice or {})}
    for pod in pods:
        name = pod["metadata"]["name"]
        for status in _iterate_container_statuses(pod):
            waiting = status.get("state", {}).get("waiting", {})
            reason = waiting.get("reason", "")
            if reason not in ADVICE:
                continue
            message = _failure_message(name, events) or waiting.get("message", "")
            advice_text = all_advice[reason]
            ended = status.get("lastState", {}).get("terminated", {})
            if reason == "CrashLoopBackOff":
                if ended.get("reason") == OUT_OF_MEMORY:
                    advice_text = _describe_kill(pod, status["name"], all_advice)
                message = f"it repeatedly ended with exit code {ended.get('exitCode', 'unknown')}"
            text = f"pod {name}: {reason}: {_one_line(message)}; {advice_text}"
            return PendingPod(name, status["name"], reason, text, bool(ended))
    return None


def summarize(pods: Sequence[Object], events: Sequence[Object]) -> str:
    """Return one line on why pods are not ready."""
    if not pods:
        warnings = explain_waiting(pods, events)
        return f"No pod exists yet. {warnings}" if warnings else "No pod exists yet."
    phases = Counter(_describe_phase(pod) for pod in pods)
    counts = ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items()))
    return f"Pods: {counts}. {explain_waiting(pods, events)}".rstrip()


def explain_waiting(pods: Sequence[Object], events: Sequence[Object]) -> str:
    """Return why pods are missing or not ready; empty if Kubernetes does not say it."""
    waiting = {pod["metadata"]["name"] for pod in pods if not is_ready(pod)} if pods else None
    return _latest_warnings(events, waiting) or _unschedulable_reason(pods)


def find_out_of_memory(
    pods: Sequence[Object], advice: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return messages about containers killed for memory, by pod name and restart count."""
    messages = {}
    for pod in pods:
        for status in _iterate_container_statuses(pod):
            for state in ("state", "lastState"):
                if status.get(state, {}).get("terminated", {}).get("reason") == OUT_OF_MEMORY:
                    name = pod["metadata"]["name"]
                    text = _describe_kill(pod, status["name"], advice)
                    messages[f"{name} {status.get('restartCount', 0)}"] = f"pod {name}: {text}"
    return messages


def _describe_kill(pod: Object, container: str, advice: Mapping[str, str] | None) -> str:
    limit, advice_text = format_memory_limit(pod, container), (advice or {}).get(OUT_OF_MEMORY, "")
    text = f"the kernel killed it because it used more memory than its pod has, {limit}"
    return f"{text}: {advice_text}" if advice_text else text


def select_events(events: Sequence[Object], prefix: str) -> list[Object]:
    """Return the events about objects whose names begin with a prefix."""
    return [
        event for event in events if str(event["involvedObject"].get("name", "")).startswith(prefix)
    ]


def drop_traceback_frames(log: str) -> list[str]:
    r"""Return the lines of a log without the frames of tracebacks.

    Examples
    --------
    >>> drop_traceback_frames("Traceback (most recent call last):\n  File x\n    y()\nKeyError: 1")
    ['Traceback (most recent call last):', 'KeyError: 1']
    """
    return [line for line in log.splitlines() if line and not line[0].isspace()]


def _iterate_container_statuses(pod: Object) -> Iterator[Object]:
    status = pod.get("status", {})
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()


def format_memory_limit(pod: Object, container: str) -> str:
    """Return the memory limit of a container, as text."""
    for spec in pod.get("spec", {}).get("containers", ()):
        if spec["name"] == container:
            limit = spec.get("resources", {}).get("limits", {}).get("memory", "")
            return f"{int(limit) / 1e9:.4g} GB" if str(limit).isdecimal() else str(limit)
    return "unknown"


def get_container_state(pod: Object, container: str) -> dict[str, Any]:
    """Return the state of a container: running, terminated or waiting; empty if unknown."""
    for status in pod.get("status", {}).get("containerStatuses") or ():
        if status["name"] == container:
            state: dict[str, Any] = status.get("state", {})
            return state
    return {}


def read_start_time(pod: Object, container: str) -> float | None:
    """Return the time at which a container started; None before."""
    state = get_container_state(pod, container)
    started = (state.get("running") or state.get("terminated") or {}).get("startedAt")
    return parse_time(started) if started else None


def has_finished(pod: Object, container: str) -> bool:
    """Return whether a container, or its whole pod, has ended."""
    phase = pod["status"].get("phase")
    return phase in ("Succeeded", "Failed") or "terminated" in get_container_state(pod, container)


def read_end(pod: Object, container: str) -> PodEnd | None:
    """Return how a container ended; None before its end."""
    ended, status = get_container_state(pod, container).get("terminated"), pod["status"]
    if ended is None and status.get("phase") != "Failed":
        return None
    deleted = _is_disrupted(pod) or "deletionTimestamp" in pod["metadata"]
    if ended is None or (int(ended["exitCode"]) and deleted):
        reason = status.get("reason") or "it was deleted"
        message = " ".join(str(status.get("message", "")).split())
        return PodEnd(None, f"{reason}: {message}" if message else reason)
    code, ended_at = int(ended["exitCode"]), None
    with suppress(KeyError, ValueError):
        ended_at = parse_time(ended["finishedAt"])
    if code and ended.get("reason") == OUT_OF_MEMORY:
        limit = format_memory_limit(pod, container)
        text = f"it needed more than the memory of its pod, {limit}"
        return PodEnd(-signal.SIGKILL, text, out_of_memory=True, time=ended_at)
    if code == NOT_STARTED and ended.get("message"):
        return PodEnd(
            COMMAND_NOT_FOUND, f"{ended.get('reason')}: {ended['message']}", time=ended_at
        )
    if 128 < code <= 128 + signal.NSIG:
        code = 128 - code
    return PodEnd(code, time=ended_at)


def _is_disrupted(pod: Object) -> bool:
    """Return whether Kubernetes ended the pod, to make room for another one or with its node."""
    return any(
        condition["type"] == "DisruptionTarget" and condition["status"] == "True"
        for condition in pod["status"].get("conditions") or ()
    )


def find_job_end(job: Object) -> JobEnd | None:
    """Return how a Job ended; None before its end."""
    for condition in job.get("status", {}).get("conditions") or ():
        if condition["status"] == "True" and condition["type"] in ("Complete", "Failed"):
            message = condition.get("message") or condition.get("reason", "")
            return JobEnd(condition["type"] == "Complete", str(message))
    return None


def is_ready(pod: Object) -> bool:
    """Return whether all containers of a pod run and pass their health checks."""
    conditions = pod.get("status", {}).get("conditions", ())
    ready = any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
    )
    return ready and "deletionTimestamp" not in pod["metadata"]


def is_unscheduled(pod: Object) -> bool:
    """Return whether no node has room for a pod yet."""
    return _find_unscheduled(pod) is not None


def is_deleted(pod: Object) -> bool:
    """Return whether a pod is being deleted and none of its containers runs any more."""
    runs = any("running" in status.get("state", {}) for status in _iterate_container_statuses(pod))
    return "deletionTimestamp" in pod["metadata"] and not runs


def read_deletion_time(pod: Object) -> float | None:
    """Return the time at which the deletion of a pod was requested; None if it was not."""
    requested = pod["metadata"].get("deletionTimestamp")
    return parse_time(requested) if requested else None


def parse_time(text: str) -> float:
    """Return the seconds since 1970 of a time of Kubernetes."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _describe_phase(pod: Object) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "ending"
    for status in _iterate_container_statuses(pod):
        if reason := status.get("state", {}).get("waiting", {}).get("reason"):
            return str(reason)
    phase = str(pod.get("status", {}).get("phase", "Unknown"))
    return phase if phase != "Running" or is_ready(pod) else "running but not ready"


def _unschedulable_reason(pods: Sequence[Object]) -> str:
    """Return why Kubernetes cannot schedule the first pod without a node."""
    for condition in filter(None, map(_find_unscheduled, pods)):
        return f"{condition.get('reason')}: {_one_line(condition.get('message', ''))}"
    return ""


def _find_unscheduled(pod: Object) -> Object | None:
    """Return the condition of a pod that cannot be scheduled; None for others."""
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            found: Object = condition
            return found
    return None


def _failure_message(pod: str, events: Sequence[Object]) -> str:
    """Return the longest message of a pod's failures; shorter ones repeat parts of it."""
    texts = [
        str(event.get("message", ""))
        for event in events
        if event["involvedObject"].get("name") == pod and event.get("reason") == "Failed"
    ]
    return max(texts, key=len, default="")


def _latest_warnings(events: Sequence[Object], pods: set[str] | None) -> str:
    """Return the latest warning for each reason, in one line."""
    latest: dict[str, str] = {}
    for event in sorted(events, key=_event_time):
        involved = event["involvedObject"]
        if pods is None or involved.get("kind") != "Pod" or involved.get("name") in pods:
            latest[str(event.get("reason"))] = _one_line(event.get("message", ""))
    return "; ".join(f"{reason}: {text}" for reason, text in latest.items())


def _event_time(event: Object) -> str:
    times = (event.get("lastTimestamp"), event.get("eventTime"), event.get("firstTimestamp"))
    return next((str(time) for time in times if time), "")


def _one_line(text: object) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= 400 else line[:397] + "..."
