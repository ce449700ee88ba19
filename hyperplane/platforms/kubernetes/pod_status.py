"""Explain from pods and events why a pod does not run, and whether it ever will."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Object = Mapping[str, Any]

#: Waiting reasons of containers that do not resolve by themselves -> what to do.
FINAL = {
    "ImagePullBackOff": "check hyperplane.engines.kubernetes.image and .image_pull_secrets",
    "InvalidImageName": "check hyperplane.engines.kubernetes.image",
    "ErrImageNeverPull": "image_pull_policy is Never and the node does not have the image",
    "CreateContainerConfigError": "build the image with a non-root USER, or set "
    "hyperplane.engines.kubernetes.run_as_user",
    "CreateContainerError": "check that the image has Python, dask and distributed on its PATH",
    "RunContainerError": "check that the image has Python, dask and distributed on its PATH",
    "CrashLoopBackOff": "see the last lines of its log",
}
MEMORY = (
    "the kernel killed it because it used more memory than its pod has, {limit}: raise "
    "ram_gb_per_proc, or use fewer threads"
)


class PendingPod(NamedTuple):
    """A pod that waits for a reason which does not resolve by itself.

    Parameters
    ----------
    pod, container : str
        Names of the pod and of the waiting container.
    text : str
        The reason, and what to do.
    ran : bool
        Whether the container has run, so that it has a log.
    """

    pod: str
    container: str
    text: str
    ran: bool


def find_pending_pod(pods: Sequence[Object], events: Sequence[Object]) -> PendingPod | None:
    """Return the first pod that will not run, or None if all may run later."""
    for pod in pods:
        name = pod["metadata"]["name"]
        for status in _containers(pod):
            waiting = status.get("state", {}).get("waiting", {})
            reason = waiting.get("reason", "")
            if reason not in FINAL:
                continue
            message = _failure_message(name, events) or waiting.get("message", "")
            advice = FINAL[reason]
            ended = status.get("lastState", {}).get("terminated", {})
            if reason == "CrashLoopBackOff":
                if ended.get("reason") == "OOMKilled":
                    advice = MEMORY.format(limit=memory_of(pod, status["name"]))
                message = f"it repeatedly ended with exit code {ended.get('exitCode', 'unknown')}"
            text = f"pod {name}: {reason}: {_one_line(message)}; {advice}"
            return PendingPod(name, status["name"], text, bool(ended))
    return None


def summary(pods: Sequence[Object], events: Sequence[Object]) -> str:
    """Return one line on why pods are not ready."""
    if not pods:
        warnings = _latest_warnings(events, None)
        return f"No pod exists yet. {warnings}" if warnings else "No pod exists yet."
    phases = Counter(_describe_phase(pod) for pod in pods)
    counts = ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items()))
    waiting = {pod["metadata"]["name"] for pod in pods if not is_ready(pod)}
    warnings = _latest_warnings(events, waiting) or _unschedulable_reason(pods)
    return f"Pods: {counts}. {warnings}".rstrip()


def find_out_of_memory(pods: Sequence[Object]) -> dict[str, str]:
    """Return messages on containers killed for memory, by pod name and restart count."""
    counts = {}
    for pod in pods:
        for status in _containers(pod):
            for state in ("state", "lastState"):
                if status.get(state, {}).get("terminated", {}).get("reason") == "OOMKilled":
                    name = pod["metadata"]["name"]
                    limit = MEMORY.format(limit=memory_of(pod, status["name"]))
                    counts[f"{name} {status.get('restartCount', 0)}"] = f"pod {name}: {limit}"
    return counts


def select_events(events: Sequence[Object], prefix: str) -> list[Object]:
    """Return the events about objects whose names begin with a prefix."""
    return [one for one in events if str(one["involvedObject"].get("name", "")).startswith(prefix)]


def drop_traceback_frames(log: str) -> list[str]:
    r"""Return the lines of a log without the frames of tracebacks.

    Examples
    --------
    >>> drop_traceback_frames("Traceback (most recent call last):\n  File x\n    y()\nKeyError: 1")
    ['Traceback (most recent call last):', 'KeyError: 1']
    """
    return [line for line in log.splitlines() if line and not line[0].isspace()]


def _containers(pod: Object) -> Iterator[Object]:
    status = pod.get("status", {})
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()


def memory_of(pod: Object, container: str) -> str:
    """Return the memory limit of a container, as text."""
    for one in pod.get("spec", {}).get("containers", ()):
        if one["name"] == container:
            limit = one.get("resources", {}).get("limits", {}).get("memory", "")
            return f"{int(limit) / 1e9:.4g} GB" if str(limit).isdecimal() else str(limit)
    return "unknown"


def is_ready(pod: Object) -> bool:
    """Return whether all containers of a pod run and pass their health checks."""
    conditions = pod.get("status", {}).get("conditions", ())
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def has_ended(pod: Object) -> bool:
    """Return whether a pod is being deleted and none of its containers runs."""
    runs = any("running" in status.get("state", {}) for status in _containers(pod))
    return "deletionTimestamp" in pod["metadata"] and not runs


def _describe_phase(pod: Object) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "ending"
    for status in _containers(pod):
        if reason := status.get("state", {}).get("waiting", {}).get("reason"):
            return str(reason)
    phase = str(pod.get("status", {}).get("phase", "Unknown"))
    return phase if phase != "Running" or is_ready(pod) else "running but not ready"


def _unschedulable_reason(pods: Sequence[Object]) -> str:
    """Return why Kubernetes cannot schedule the first pod without a node."""
    for pod in pods:
        for condition in pod.get("status", {}).get("conditions", ()):
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                return f"{condition.get('reason')}: {_one_line(condition.get('message', ''))}"
    return ""


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
        about = event["involvedObject"]
        if pods is None or about.get("kind") != "Pod" or about.get("name") in pods:
            latest[str(event.get("reason"))] = _one_line(event.get("message", ""))
    return "; ".join(f"{reason}: {text}" for reason, text in latest.items())


def _event_time(event: Object) -> str:
    times = (event.get("lastTimestamp"), event.get("eventTime"), event.get("firstTimestamp"))
    return next((str(time) for time in times if time), "")


def _one_line(text: object) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= 400 else line[:397] + "..."
