"""An attempt at a step as a Job of Kubernetes with one pod, and the Secret that it owns."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from hyperplane import config
from hyperplane.engines.kubernetes.pods import container_of, pairs, pod_of, verbatim
from hyperplane.errors import UnknownPool
from hyperplane.jobs.definition.models import Step
from hyperplane.jobs.processes import Command
from hyperplane.jobs.runners.rendering import grace_seconds
from hyperplane.spec.settings import KubernetesJobSettings

#: Where a step may write what belongs to the job; without ``root`` its file is there, too.
FOLDER = "/var/lib/hyperplane"
#: The container that runs the step.
CONTAINER = "step"
#: Label of all that belongs to a job.
JOB_LABEL = "hyperplane.dev/job"
#: Seconds for which a Job that has ended is kept, if nobody takes it away.
TTL_SECONDS = 86_400
#: Bytes of a file that a Secret holds beside variables.
MAX_FILE_BYTES = 900_000


class StagedFile(NamedTuple):
    """A file that goes with an attempt.

    Parameters
    ----------
    key : str
        In the Secret; no variable has a dash.
    where : str
        Its path in the pod.
    content : bytes
        What it holds.
    """

    key: str
    path: str
    content: bytes


def attempt_job_name(command: Command) -> str:
    """The name of an attempt's Job: its own in all namespaces, and to be found by it.

    Examples
    --------
    >>> place = Path("/jobs/8f2c0a11-1111-4000-8000-000000000001/steps/002-Tidy up/chunk-00007")
    >>> name_of(Command((), {}, "", place / "attempt-1"))
    'hyperplane-8f2c0a11-1111-002-tidy-up-00007-1'
    """
    above, _, attempt = str(command.attempt_prefix).rpartition("/steps/")
    step, *chunk, number = attempt.split("/")
    words = [Path(above).name[:13], step[:24], *(one.removeprefix("chunk-") for one in chunk)]
    words.append(number.removeprefix("attempt-"))
    return re.sub("[^a-z0-9]+", "-", "-".join(["hyperplane", *words]).lower())


def owning_job_id(command: Command) -> str:
    """The id of the job that an attempt belongs to."""
    return Path(str(command.attempt_prefix).rpartition("/steps/")[0]).name


def build_job(
    command: Command,
    step: Step,
    memory_factor: float,
    settings: KubernetesJobSettings,
    sent: Sequence[StagedFile],
) -> dict[str, Any]:
    """The Job of an attempt.

    Parameters
    ----------
    command : Command
        What it runs, with the paths of its image.
    step : Step
        Its step, with a pool's sizes in place of its name.
    memory_factor : float
        How many times the memory that the step asks for.
    settings : KubernetesJobSettings
        Image, nodes and so on.
    sent : sequence of Sent
        The files that go with it.
    """
    name = attempt_job_name(command)
    labels = {
        **pairs(settings.labels),
        "app.kubernetes.io/managed-by": "hyperplane",
        JOB_LABEL: owning_job_id(command),
    }
    notes = {**pairs(settings.annotations), "hyperplane.dev/step-name": step.name}
    container = _container(command, step, memory_factor, settings, sent)
    pod = pod_of(container, _node_selector(command, settings), settings) | {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": math.ceil(grace_seconds()),
        "volumes": _volumes(name, sent),
    }
    # Whoever looks after the job makes the next attempt, and knows why.
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
    job: Mapping[str, Any], command: Command, sent: Sequence[StagedFile]
) -> dict[str, Any] | None:
    """What an attempt's Job owns: its secrets and its files; None when it has neither."""
    held = {
        name: text.encode(errors="surrogateescape")
        for name, text in command.secret_variables.items()
    }
    held |= {one.key: one.content for one in sent}
    if not held:
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
        "data": {name: base64.b64encode(content).decode() for name, content in held.items()},
    }


def _container(
    command: Command,
    step: Step,
    memory_factor: float,
    settings: KubernetesJobSettings,
    sent: Sequence[StagedFile],
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
        for one in sent
    ]
    found = {
        **container_of(CONTAINER, settings),
        "command": list(map(verbatim, command.argv)),
        "workingDir": command.folder,
        "env": [*plain, *hidden],
        "volumeMounts": mounts,
    }
    if asked := _resource_quantities(step, memory_factor):
        found["resources"] = {"requests": asked, "limits": asked}
    if step.port is not None:
        found["ports"] = [{"containerPort": step.port}]
    return found


def _volumes(secret: str, sent: Sequence[StagedFile]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"name": "job", "emptyDir": {}}]
    if sent:
        # Of the Secret the files only, and no variable.
        items = [{"key": one.key, "path": one.key} for one in sent]
        held = {"secretName": secret, "items": items, "defaultMode": 0o555}
        found.append({"name": "files", "secret": held})
    return found


def _node_selector(command: Command, settings: KubernetesJobSettings) -> dict[str, str]:
    """Labels that the node must have; those with a pool's name for steps that name one only."""
    alias = ""
    with suppress(UnknownPool):  # its sizes are kept with the job
        alias = config.get_pool(command.pool).alias if command.pool else ""
    return {
        key: value.replace("{pool}", command.pool).replace("{alias}", alias)
        for key, value in pairs(settings.node_selector).items()
        if command.pool or "{" not in value
    }


def _resource_quantities(step: Step, memory_factor: float) -> dict[str, str]:
    asked = step.resources
    found = {}
    if asked.cores is not None:
        found["cpu"] = f"{math.ceil(round(asked.cores * 1000, 6))}m"
    if asked.ram_gb is not None:
        found["memory"] = str(math.ceil(asked.ram_gb * 1e9 * memory_factor))
    if asked.gpus:
        found["nvidia.com/gpu"] = str(asked.gpus)
    return found
