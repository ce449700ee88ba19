"""Pod of a step, which the runner and the exporter to Kubernetes have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hyperplane.core.errors import Fault
from hyperplane.jobs.definition.message_formatting import format_value
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.runners.step_resources import grace_seconds
from hyperplane.platforms.kubernetes.batch_job import build_job_pod
from hyperplane.platforms.kubernetes.objects import MANAGED_BY
from hyperplane.platforms.kubernetes.pods import build_container
from hyperplane.platforms.kubernetes.staged_files import StagedFile, build_file_volumes, mount_files

#: Folder in which a step may write; without ``root`` it also has the step's file.
FOLDER = "/var/lib/hyperplane"
#: Name of the container that runs the step.
CONTAINER = "step"
#: Label of all objects of a job.
JOB_LABEL = "hyperplane.dev/job"
#: Annotation with the name of the step.
STEP_NAME = "hyperplane.dev/step-name"


def find_requirements_faults(pipeline: Pipeline) -> list[Fault]:
    """Return a fault if the pipeline has requirements: pods have the packages of their image."""
    if pipeline.requirements is None:
        return []
    asked, allowed = format_value(pipeline.requirements), "no requirements on kubernetes"
    advice = "install them in the image, and omit the key"
    return [Fault("requirements", asked, allowed, advice)]


def build_step_labels(job_id: str) -> dict[str, str]:
    """Return the labels of all objects of a job."""
    return {**MANAGED_BY, JOB_LABEL: job_id}


def build_step_pod(
    step: Step,
    fields: Mapping[str, Any],
    *,
    image: str | None,
    pull_policy: str | None = None,
    command: Sequence[str],
    folder: str,
    variables: Sequence[Mapping[str, Any]],
    quantities: Mapping[str, str],
    files: Sequence[StagedFile] = (),
    secret: str = "",
    deadline: float | None = None,
) -> dict[str, Any]:
    """Return the spec of the pod of a step.

    ``fields`` are other fields of the pod, such as its node selector and security context.
    ``$(NAME)`` in the words of ``command`` is expanded. ``quantities`` are requests and limits. The
    contents of ``files`` are in the Secret named ``secret``. After ``deadline`` seconds Kubernetes
    ends the pod.
    """
    options = {"command": list(command), "workingDir": folder, "env": list(variables)}
    container = {
        **build_container(CONTAINER, image, pull_policy=pull_policy, **options),
        "volumeMounts": [{"name": "job", "mountPath": FOLDER}, *mount_files(files)],
    }
    if quantities:
        container["resources"] = {"requests": dict(quantities), "limits": dict(quantities)}
    if step.port is not None:
        container["ports"] = [{"containerPort": step.port}]
    return build_job_pod(
        container,
        fields,
        grace=grace_seconds(),
        volumes=[{"name": "job", "emptyDir": {}}, *build_file_volumes(secret, files)],
        deadline=deadline,
    )
