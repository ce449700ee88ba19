"""Render a job as Kubernetes Jobs, one per step, indexed if the step has chunks."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from hyperplane.core.errors import Fault
from hyperplane.jobs import calls
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.definition.wording import format_value
from hyperplane.jobs.environment import PARAMETERS
from hyperplane.jobs.exporters.kubernetes_manifest import SAFE_CONTAINER, SAFE_POD, dump_yaml
from hyperplane.jobs.exporters.rendering import (
    INPUT_CODES,
    StepEnvironment,
    build_command_line,
    build_environment,
    common_faults,
    count_retries,
    file_stem,
    grace_seconds,
    resource_request,
    slug,
)
from hyperplane.jobs.runners.base import Document
from hyperplane.jobs.runners.item import ITEMS
from hyperplane.jobs.states import Job
from hyperplane.jobs.step_command import working_folder
from hyperplane.platforms.kubernetes.pods import verbatim

#: Secret object for secrets whose names have no slash.
SECRET_NAME = "hyperplane"  # noqa: S105 - the name of an object
#: Folder in which a step may write files of the job.
FOLDER = "/var/lib/hyperplane"
#: Seconds for which a finished Job is kept.
TTL_SECONDS = 86_400
#: Maximum bytes of one environment variable on Linux.
_MAX_VARIABLE_BYTES = 128 * 1024 - len(f"{ITEMS}=") - 1
_IMAGE_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,511}")
_NAME_PATTERN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"


@dataclass(frozen=True)
class KubernetesRenderer:
    """Renders jobs as manifests.

    Parameters
    ----------
    image : str, optional
        Image with the programs and packages of the steps; required.
    root : str, optional
        Folder of the image with the pipeline's files; by default the same path as on this machine.
    """

    image: str | None = None
    root: str | None = None

    name: ClassVar[str] = "kubernetes"

    def find_unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """Return everything in a pipeline, the image or the root that is not supported."""
        faults = list(self._options())
        if pipeline.requirements is not None:
            advice = "install them in the image, and omit the key"
            allowed = f"no requirements on {self.name}"
            faults.append(
                Fault("requirements", format_value(pipeline.requirements), allowed, advice)
            )
        faults += common_faults(pipeline, self.name)
        for index, step in enumerate(pipeline.steps):
            faults += (
                replace(one, where=f"steps[{index}].{one.where}") for one in _step_faults(step)
            )
        return faults

    def _options(self) -> Iterator[Fault]:
        if not (isinstance(self.image, str) and _IMAGE_PATTERN.fullmatch(self.image)):
            given = "nothing" if self.image is None else format_value(self.image)
            advice = "on the command line: --option image=registry/name:tag"
            yield Fault("image", given, "the name of an image, such as registry/name:tag", advice)
        root = self.root
        if root is not None and not (
            isinstance(root, str) and root.startswith("/") and root.isprintable()
        ):
            yield Fault("root", format_value(root), "an absolute path in the image")

    def render(self, job: Job) -> list[Document]:
        """Render a manifest for each step; steps with dependencies are suspended."""
        root = self.root or job.pipeline.root
        pipeline = job.pipeline.model_copy(update={"root": root})
        moved = replace(job, definition=pipeline.to_json(), folder=FOLDER)
        return [
            Document(
                f"{file_stem(place, step)}.yaml",
                dump_yaml(self._manifest(moved, place, step)),
                "step",
            )
            for place, step in enumerate(pipeline.steps)
        ]

    def _manifest(self, job: Job, place: int, step: Step) -> dict[str, Any]:
        labels = {
            "app.kubernetes.io/managed-by": "hyperplane",
            "hyperplane.dev/job": slug(job.id, 63),
            "hyperplane.dev/step": file_stem(place, step),
        }
        spec = {
            **_retry_spec(job, step),
            "suspend": bool(step.depends_on),
            "ttlSecondsAfterFinished": TTL_SECONDS,
            "template": {"metadata": {"labels": labels}, "spec": self._pod(job, step)},
        }
        if job.active_timeout > 0:
            spec["activeDeadlineSeconds"] = math.ceil(job.active_timeout)
        notes = {"hyperplane.dev/step-name": step.name, "hyperplane.dev/job-name": job.name}
        if step.depends_on:
            places = {one.name: (index, one) for index, one in enumerate(job.pipeline.steps)}
            after = [_job_name(job, *places[name]) for name in step.depends_on]
            notes["hyperplane.dev/depends-on"] = ",".join(after)
        metadata = {"name": _job_name(job, place, step), "labels": labels, "annotations": notes}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}

    def _pod(self, job: Job, step: Step) -> dict[str, Any]:
        container: dict[str, Any] = {
            "name": "step",
            "image": self.image,
            "command": _container_command(job, step),
            "workingDir": working_folder(job.pipeline, step),
            "env": _container_environment(step, build_environment(job, step)),
            **SAFE_CONTAINER,
            "volumeMounts": [{"name": "job", "mountPath": FOLDER}],
        }
        quantities = _resource_quantities(step)
        if quantities:
            container["resources"] = {"requests": quantities, "limits": quantities}
        if step.port is not None:
            container["ports"] = [{"containerPort": step.port}]
        pod: dict[str, Any] = {
            "restartPolicy": "Never",
            **SAFE_POD,
            "terminationGracePeriodSeconds": math.ceil(grace_seconds()),
            "containers": [container],
            "volumes": [{"name": "job", "emptyDir": {}}],
        }
        if step.timeout is not None:
            # On the pod, not on the Job: it limits one attempt.
            pod["activeDeadlineSeconds"] = math.ceil(step.timeout)
        return pod


def _step_faults(step: Step) -> Iterator[Fault]:
    """Yield what prevents a step from running in a pod."""
    if step.argv[1:] == ("-m", calls.PROGRAM):
        yield Fault("argv", "a Python function", "a script in the image")
    length = len(_items_json(step).encode()) if step.foreach else 0
    if length > _MAX_VARIABLE_BYTES:
        allowed = f"values of at most {_MAX_VARIABLE_BYTES} bytes as JSON"
        advice = "use chunks, and read the values from a file"
        yield Fault("foreach", f"{length} bytes", allowed, advice)
    for place, name in enumerate(step.secrets):
        if not _NAME_PATTERN.fullmatch(_secret_key_reference(name)["name"]):
            allowed = "before the slash the name of a Secret: lower case letters, digits, - and ."
            yield Fault(f"secrets[{place}]", format_value(name), allowed)


def _job_name(job: Job, place: int, step: Step) -> str:
    """Return the name of a step's Job; pods append up to 13 characters to it, 63 in all."""
    parts = (slug(job.name, 20), slug(job.id, 8), file_stem(place, step))
    return "-".join(part for part in parts if part)[:50].strip("-").lower()


def _retry_spec(job: Job, step: Step) -> dict[str, Any]:
    """Return the retry policy: number of retries, and exit codes that are not retried."""
    count, retries = step.chunk_count, count_retries(job, step)
    codes = {"containerName": "step", "operator": "In", "values": list(INPUT_CODES)}
    disruption = {"type": "DisruptionTarget", "status": "True"}
    policy = {
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", "onPodConditions": [disruption]},
                {"action": "FailIndex" if count else "FailJob", "onExitCodes": codes},
            ]
        }
    }
    if not count:
        return {"backoffLimit": retries, **policy}
    return {
        "completionMode": "Indexed",
        "completions": count,
        "parallelism": min(step.max_parallel or count, count),
        "backoffLimitPerIndex": retries,
        **policy,
    }


def _container_command(job: Job, step: Step) -> list[str]:
    run = build_command_line(job, step, "python")
    # The location of this package in the image is unknown.
    notebook = ("python", "-m", "hyperplane.jobs.notebook", *run.words[2:])
    words = [verbatim(word) for word in (notebook if step.kind == "notebook" else run.words)]
    if run.output is not None:
        before, after = map(verbatim, run.output)
        words.append(f"{before}$({_INDEX_VARIABLE}){after}")
    if step.foreach:
        return ["python", "-m", "hyperplane.jobs.runners.item", *words]
    return words


def _container_environment(step: Step, variables: StepEnvironment) -> list[dict[str, Any]]:
    texts = {name: verbatim(text) for name, text in variables.fixed.items()}
    entries: list[dict[str, Any]] = []
    if step.chunk_count:
        # Set first: Kubernetes would add it last, and the other variables could not refer to it.
        path = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
        entries.append({"name": _INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": path}}})
        texts.pop(_INDEX_VARIABLE, None)
        texts |= dict.fromkeys(variables.index_variables, f"$({_INDEX_VARIABLE})")
        shared = verbatim(json.dumps(variables.parameters, ensure_ascii=False)[:-1])
        comma = ", " if variables.parameters else ""
        texts[PARAMETERS] = f'{shared}{comma}"chunk_id": "$({_INDEX_VARIABLE})"}}'
    if step.foreach:
        texts[ITEMS] = verbatim(_items_json(step))
    entries += [{"name": name, "value": text} for name, text in texts.items()]
    sources = {name: secret for secret, names in variables.secrets.items() for name in names}
    for name, secret in sources.items():
        entries.append({"name": name, "valueFrom": {"secretKeyRef": _secret_key_reference(secret)}})
    return entries


def _items_json(step: Step) -> str:
    return json.dumps(step.foreach, ensure_ascii=False)


def _secret_key_reference(secret: str) -> dict[str, str]:
    holder, _, key = secret.rpartition("/")
    return {"name": holder or SECRET_NAME, "key": key}


def _resource_quantities(step: Step) -> dict[str, str]:
    quantities = resource_request(step)
    result = {}
    if quantities.cores is not None:
        result["cpu"] = f"{math.ceil(round(quantities.cores * 1000, 6))}m"
    if quantities.memory is not None:
        result["memory"] = str(quantities.memory)
    if quantities.gpus:
        result["nvidia.com/gpu"] = str(quantities.gpus)
    return result
