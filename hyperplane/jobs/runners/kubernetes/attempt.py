"""Manifests of one attempt: a Kubernetes Job with one pod, and the Secret that it owns."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from hyperplane import config
from hyperplane.core.errors import UnknownPool
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.exporters.rendering import grace_seconds
from hyperplane.jobs.processes import AttemptCommand
from hyperplane.platforms.kubernetes.pods import container_of, pairs, pod_of, verbatim
from hyperplane.spec.settings import KubernetesJobSettings

#: Folder in which a step may write; without ``root`` it also has the step's file.
FOLDER = "/var/lib/hyperplane"
#: Name of the container that runs the step.
CONTAINER = "step"
#: Label of all objects of a job.
JOB_LABEL = "hyperplane.dev/job"
#: Seconds for which a finished Job is kept if it is not deleted.
TTL_SECONDS = 86_400
#: Maximum bytes of a staged file: a Secret also holds variables.
MAX_FILE_BYTES = 900_000


class StagedFile(NamedTuple):
    """A file that is mounted into the pod of an attempt.

    Parameters
    ----------
    key : str
        Key in the Secret; it has a dash, which variables have not.
    path : str
        Path in the pod.
    content : bytes
        Content of the file.
    """

    key: str
    path: str
    content: bytes


def attempt_job_name(command: AttemptCommand) -> str:
    """Return the unique, reproducible name of an attempt's Job.

    Examples
    --------
    >>> place = Path("/jobs/8f2c0a11-1111-4000-8000-000000000001/steps/002-Tidy up/chunk-00007")
    >>> attempt_job_name(AttemptCommand((), {}, "", place / "attempt-1"))
    'hyperplane-8f2c0a11-1111-002-tidy-up-00007-1'
    """
    above, _, attempt = str(command.attempt_prefix).rpartition("/steps/")
    step, *chunk, number = attempt.split("/")
    words = [Path(above).name[:13], step[:24], *(one.removeprefix("chunk-") for one in chunk)]
    words.append(number.removeprefix("attempt-"))
    return re.sub("[^a-z0-9]+", "-", "-".join(["hyperplane", *words]).lower())


def owning_job_id(command: AttemptCommand) -> str:
    """Return the id of the job that an attempt belongs to."""
    return Path(str(command.attempt_prefix).rpartition("/steps/")[0]).name


def build_job(
    command: AttemptCommand,
    step: Step,
    memory_factor: float,
    settings: KubernetesJobSettings,
    files: Sequence[StagedFile],
) -> dict[str, Any]:
    """Build the Job of an attempt.

    Parameters
    ----------
    command : AttemptCommand
        Its command, with paths in the image.
    step : Step
        Its step, with resources in place of a pool's name.
    memory_factor : float
        Factor by which the step's memory is multiplied.
    settings : KubernetesJobSettings
        Image, nodes and other settings.
    files : sequence of StagedFile
        Files for the pod.
    """
    name = attempt_job_name(command)
    labels = {
        **pairs(settings.labels),
        "app.kubernetes.io/managed-by": "hyperplane",
        JOB_LABEL: owning_job_id(command),
    }
    notes = {**pairs(settings.annotations), "hyperplane.dev/step-name": step.name}
    container = _container(command, step, memory_factor, settings, files)
    pod = pod_of(container, _node_selector(command, settings), settings) | {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": math.ceil(grace_seconds()),
        "volumes": _volumes(name, files),
    }
    # The supervisor makes the next attempt, because it knows the reason.
    disruption = {"type": "DisruptionTarget", "status": "True"}
    no_other = {"rules": [{"action": "FailJob", "onPodConditions": [disruption]}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels, "annotations": notes},
        "spec": {
            "backoffLimit": 0,
            "podFailurePolicy": no_other,
            "ttlSecondsAfterFinished": TTL_SECONDS,
            "template": {"metadata": {"labels": labels, "annotations": notes}, "spec": pod},
        },
    }


def build_secret(
    job: Mapping[str, Any], command: AttemptCommand, files: Sequence[StagedFile]
) -> dict[str, Any] | None:
    """Build the Secret with the secrets and files of an attempt; None if it has neither."""
    content_by_key = {
        name: text.encode(errors="surrogateescape")
        for name, text in command.secret_variables.items()
    }
    content_by_key |= {one.key: one.content for one in files}
    if not content_by_key:
        return None
    metadata = job["metadata"]
    owner = {key: job[key] for key in ("apiVersion", "kind")}
    owner |= {key: metadata[key] for key in ("name", "uid")}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": metadata["name"],
            "labels": metadata["labels"],
            "ownerReferences": [owner],
        },
        "data": {
            name: base64.b64encode(content).decode() for name, content in content_by_key.items()
        },
    }


def _container(
    command: AttemptCommand,
    step: Step,
    memory_factor: float,
    settings: KubernetesJobSettings,
    files: Sequence[StagedFile],
) -> dict[str, Any]:
    reference = {"name": attempt_job_name(command)}
    hidden = [
        {"name": name, "valueFrom": {"secretKeyRef": {**reference, "key": name}}}
        for name in command.secret_variables
    ]
    own = {**pairs(settings.environ), **command.step_variables}
    plain = [
        {"name": name, "value": verbatim(text)}
        for name, text in own.items()
        if name not in command.secret_variables
    ]
    mounts: list[dict[str, Any]] = [{"name": "job", "mountPath": FOLDER}]
    mounts += [
        {"name": "files", "mountPath": one.path, "subPath": one.key, "readOnly": True}
        for one in files
    ]
    spec = {
        **container_of(CONTAINER, settings),
        "command": list(map(verbatim, command.argv)),
        "workingDir": command.folder,
        "env": [*plain, *hidden],
        "volumeMounts": mounts,
    }
    if quantities := _resource_quantities(step, memory_factor):
        spec["resources"] = {"requests": quantities, "limits": quantities}
    if step.port is not None:
        spec["ports"] = [{"containerPort": step.port}]
    return spec


def _volumes(secret: str, files: Sequence[StagedFile]) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = [{"name": "job", "emptyDir": {}}]
    if files:
        # Mount only the files of the Secret, not its variables.
        items = [{"key": one.key, "path": one.key} for one in files]
        content_by_key = {"secretName": secret, "items": items, "defaultMode": 0o555}
        volumes.append({"name": "files", "secret": content_by_key})
    return volumes


def _node_selector(command: AttemptCommand, settings: KubernetesJobSettings) -> dict[str, str]:
    """Return the node labels; those with a pool placeholder only for steps that name a pool."""
    alias = ""
    with suppress(UnknownPool):  # its sizes are stored with the job
        alias = config.get_pool(command.pool).alias if command.pool else ""
    return {
        key: value.replace("{pool}", command.pool).replace("{alias}", alias)
        for key, value in pairs(settings.node_selector).items()
        if command.pool or "{" not in value
    }


def _resource_quantities(step: Step, memory_factor: float) -> dict[str, str]:
    resources = step.resources
    result = {}
    if resources.cores is not None:
        result["cpu"] = f"{math.ceil(round(resources.cores * 1000, 6))}m"
    if resources.ram_gb is not None:
        result["memory"] = str(math.ceil(resources.ram_gb * 1e9 * memory_factor))
    if resources.gpus:
        result["nvidia.com/gpu"] = str(resources.gpus)
    return result
