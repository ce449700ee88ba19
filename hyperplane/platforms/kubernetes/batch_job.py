"""Manifests of Jobs and CronJobs, to create or to render."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

#: API version of Jobs and CronJobs.
BATCH = "batch/v1"
#: Seconds for which a finished Job is kept.
TTL_SECONDS = 86_400


def build_job(
    name: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    pod: Mapping[str, Any],
    *,
    retry: Mapping[str, Any],
    pod_annotations: Mapping[str, str] | None = None,
    suspend: bool | None = None,
    deadline: float | None = None,
) -> dict[str, Any]:
    """Return a Job.

    Parameters
    ----------
    name : str
        Name of the Job.
    labels, annotations : mapping of str to str
        Labels of the Job and its pods, and annotations of the Job.
    pod : mapping
        From :func:`build_job_pod`.
    retry : mapping
        Fields of the Job's spec for retries, indices and failures.
    pod_annotations : mapping of str to str, optional
        Annotations of the pods.
    suspend : bool, optional
        Whether the Job waits until a user resumes it.
    deadline : float, optional
        Seconds after which Kubernetes ends the Job.
    """
    spec = {
        **retry,
        **({} if suspend is None else {"suspend": suspend}),
        "ttlSecondsAfterFinished": TTL_SECONDS,
        "template": _build_template(labels, pod, pod_annotations),
        **({} if deadline is None else {"activeDeadlineSeconds": math.ceil(deadline)}),
    }
    metadata = {"name": name, "labels": dict(labels), "annotations": dict(annotations)}
    return {"apiVersion": BATCH, "kind": "Job", "metadata": metadata, "spec": spec}


def build_cron_job(
    name: str, labels: Mapping[str, str], pod: Mapping[str, Any], *, schedule: str, overlap: bool
) -> dict[str, Any]:
    """Return a CronJob whose Jobs have one attempt; ``schedule`` is in UTC."""
    spec = {
        "schedule": schedule,
        "timeZone": "Etc/UTC",
        "concurrencyPolicy": "Allow" if overlap else "Forbid",
        "jobTemplate": {"spec": {"backoffLimit": 0, "template": _build_template(labels, pod)}},
    }
    metadata = {"name": name, "labels": dict(labels)}
    return {"apiVersion": BATCH, "kind": "CronJob", "metadata": metadata, "spec": spec}


def build_job_pod(
    container: Mapping[str, Any],
    fields: Mapping[str, Any],
    *,
    grace: float,
    volumes: Sequence[Mapping[str, Any]] = (),
    deadline: float | None = None,
) -> dict[str, Any]:
    """Return the spec of a pod that runs one container once.

    Parameters
    ----------
    container : mapping
        The container.
    fields : mapping
        Other fields, from ``build_unprivileged_pod`` or ``build_configured_pod``.
    grace : float
        Seconds between SIGTERM and SIGKILL.
    volumes : sequence of mapping
        Volumes that the container mounts.
    deadline : float, optional
        Seconds after which Kubernetes ends the pod.
    """
    return {
        "restartPolicy": "Never",
        **fields,
        "terminationGracePeriodSeconds": math.ceil(grace),
        "containers": [container],
        **({"volumes": list(volumes)} if volumes else {}),
        **({} if deadline is None else {"activeDeadlineSeconds": math.ceil(deadline)}),
    }


def build_disruption_rule(action: str) -> dict[str, Any]:
    """Return the rule of a failure policy for pods that Kubernetes itself ends."""
    condition = {"type": "DisruptionTarget", "status": "True"}
    return {"action": action, "onPodConditions": [condition]}


def build_exit_code_rule(action: str, container: str, codes: Sequence[int]) -> dict[str, Any]:
    """Return the rule of a failure policy for exit codes of a container."""
    on_codes = {"containerName": container, "operator": "In", "values": list(codes)}
    return {"action": action, "onExitCodes": on_codes}


def _build_template(
    labels: Mapping[str, str],
    pod: Mapping[str, Any],
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"labels": dict(labels)}
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    return {"metadata": metadata, "spec": pod}
