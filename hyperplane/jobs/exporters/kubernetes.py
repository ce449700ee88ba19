"""Exporter to Kubernetes: a Job for each step, indexed if the step has chunks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from hyperplane.core.errors import Fault
from hyperplane.jobs import calls
from hyperplane.jobs.definition.message_formatting import format_value
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.retries import count_retries
from hyperplane.jobs.execution.step_command import working_folder
from hyperplane.jobs.execution.step_environment import PARAMETERS
from hyperplane.jobs.exporters.base import Document
from hyperplane.jobs.exporters.exported_step import (
    INPUT_CODES,
    StepEnvironment,
    build_command_line,
    build_environment,
    file_stem,
    find_common_faults,
)
from hyperplane.jobs.exporters.scheduler_text import slug
from hyperplane.jobs.runners.cluster_command import cluster_words_in_image
from hyperplane.jobs.runners.item import ITEMS
from hyperplane.jobs.runners.kubernetes.step_pod import (
    CONTAINER,
    FOLDER,
    STEP_NAME,
    build_step_labels,
    build_step_pod,
    find_requirements_faults,
)
from hyperplane.jobs.runners.step_resources import resource_request
from hyperplane.jobs.store.job_records import Job
from hyperplane.platforms.kubernetes.batch_job import (
    build_disruption_rule,
    build_exit_code_rule,
    build_job,
)
from hyperplane.platforms.kubernetes.manifest_yaml import dump_yaml
from hyperplane.platforms.kubernetes.objects import escape_variables
from hyperplane.platforms.kubernetes.pods import (
    build_secret_variable,
    build_unprivileged_pod,
    format_quantities,
    round_to_millicores,
)
from hyperplane.spec.settings.kubernetes import check_image

#: Secret object for secrets whose names have no slash.
SECRET_NAME = "hyperplane"  # noqa: S105 - the name of an object
#: Maximum bytes of one environment variable on Linux.
_MAX_VARIABLE_BYTES = 128 * 1024 - len(f"{ITEMS}=") - 1
_NAME_PATTERN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"


@dataclass(frozen=True)
class KubernetesExporter:
    """Exports jobs as manifests.

    Parameters
    ----------
    image : str, optional
        Image with the programs and packages of the steps. Without it, no job can be rendered.
    root : str, optional
        Folder of the image with the pipeline's files; by default the same path as on this machine.
    """

    image: str | None = None
    root: str | None = None

    name: ClassVar[str] = "kubernetes"

    def find_unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """Return a fault for each part of a pipeline, and each option, that is not supported."""
        faults = [*self._find_option_faults(), *find_requirements_faults(pipeline)]
        faults += find_common_faults(pipeline, self.name)
        for index, step in enumerate(pipeline.steps):
            faults += (
                replace(fault, where=f"steps[{index}].{fault.where}")
                for fault in _find_step_faults(step)
            )
        return faults

    def _find_option_faults(self) -> Iterator[Fault]:
        if not _is_image(self.image):
            asked = "nothing" if self.image is None else format_value(self.image)
            advice = "on the command line: --option image=registry/name:tag"
            yield Fault("image", asked, "the name of an image, such as registry/name:tag", advice)
        root = self.root
        if root is not None and not (
            isinstance(root, str) and root.startswith("/") and root.isprintable()
        ):
            yield Fault("root", format_value(root), "an absolute path in the image")

    def render(self, job: Job) -> list[Document]:
        """Render a manifest for each step; steps with dependencies are suspended."""
        root = self.root or job.pipeline.root
        pipeline = job.pipeline.model_copy(update={"root": root})
        job_in_image = replace(job, definition=pipeline.to_json(), folder=FOLDER)
        return [
            Document(
                f"{file_stem(index, step)}.yaml",
                dump_yaml(self._build_job(job_in_image, index, step)),
                "step",
            )
            for index, step in enumerate(pipeline.steps)
        ]

    def _build_job(self, job: Job, index: int, step: Step) -> dict[str, Any]:
        annotations = {STEP_NAME: step.name, "hyperplane.dev/job-name": job.name}
        if step.depends_on:
            indexed = {
                other.name: (number, other) for number, other in enumerate(job.pipeline.steps)
            }
            dependencies = [_build_job_name(job, *indexed[name]) for name in step.depends_on]
            annotations["hyperplane.dev/depends-on"] = ",".join(dependencies)
        pod = build_step_pod(
            step,
            build_unprivileged_pod(),
            image=self.image,
            command=_build_command(job, step),
            folder=working_folder(job.pipeline, step),
            variables=_build_variables(step, build_environment(job, step)),
            quantities=_format_quantities(step),
            # Of the pod, not of the Job: it limits one attempt.
            deadline=step.timeout,
        )
        return build_job(
            _build_job_name(job, index, step),
            {**build_step_labels(slug(job.id, 63)), "hyperplane.dev/step": file_stem(index, step)},
            annotations,
            pod,
            retry=_build_retry(job, step),
            suspend=bool(step.depends_on),
            deadline=job.active_timeout if job.active_timeout > 0 else None,
        )


def _is_image(name: object) -> bool:
    try:
        return isinstance(name, str) and bool(check_image(name))
    except ValueError:
        return False


def _find_step_faults(step: Step) -> Iterator[Fault]:
    """Yield the faults of a step that cannot run in a pod."""
    if step.argv[1:] == ("-m", calls.PROGRAM):
        yield Fault("argv", "a Python function", "a script in the image")
    if step.gang_size:
        field, shown = ("kind", "train") if step.kind == "train" else ("gang", str(step.gang))
        allowed = "a step of one process: a rendered Job restarts single pods, not all together"
        advice = "submit the job with --runner kubernetes"
        yield Fault(field, shown, allowed, advice)
    length = len(_format_items(step).encode()) if step.foreach else 0
    if length > _MAX_VARIABLE_BYTES:
        allowed = f"values of at most {_MAX_VARIABLE_BYTES} bytes as JSON"
        advice = "use chunks, and read the values from a file"
        yield Fault("foreach", f"{length} bytes", allowed, advice)
    for index, name in enumerate(step.secrets):
        if not _NAME_PATTERN.fullmatch(_split_secret(name)[0]):
            allowed = "before the slash the name of a Secret: lower case letters, digits, - and ."
            yield Fault(f"secrets[{index}]", format_value(name), allowed)


def _build_job_name(job: Job, index: int, step: Step) -> str:
    """Return the name of a step's Job; pods append up to 13 characters to it, 63 in all."""
    parts = (slug(job.name, 20), slug(job.id, 8), file_stem(index, step))
    return "-".join(part for part in parts if part)[:50].strip("-").lower()


def _build_retry(job: Job, step: Step) -> dict[str, Any]:
    """Return the number of retries, and the exit codes that are not retried.

    A Job has no field for delays: Kubernetes waits 10 s before the first retry, twice as long
    before each further one, and at most 6 minutes.
    """
    count, retries = step.chunk_count, count_retries(step, job.max_retries)
    rules = [
        build_disruption_rule("Ignore"),
        build_exit_code_rule("FailIndex" if count else "FailJob", CONTAINER, INPUT_CODES),
    ]
    policy = {"podFailurePolicy": {"rules": rules}}
    if not count:
        return {"backoffLimit": retries, **policy}
    return {
        "completionMode": "Indexed",
        "completions": count,
        "parallelism": min(step.max_parallel or count, count),
        "backoffLimitPerIndex": retries,
        **policy,
    }


def _build_command(job: Job, step: Step) -> list[str]:
    run = build_command_line(job, step, "python")
    # The location of this package in the image is unknown.
    notebook = ("python", "-m", "hyperplane.jobs.notebook", *run.words[2:])
    program = notebook if step.kind == "notebook" else run.words
    words = [escape_variables(word) for word in (*cluster_words_in_image(step), *program)]
    if run.output is not None:
        before, after = map(escape_variables, run.output)
        words.append(f"{before}$({_INDEX_VARIABLE}){after}")
    if step.foreach:
        return ["python", "-m", "hyperplane.jobs.runners.item", *words]
    return words


def _build_variables(step: Step, variables: StepEnvironment) -> list[dict[str, Any]]:
    texts = {name: escape_variables(text) for name, text in variables.fixed.items()}
    entries: list[dict[str, Any]] = []
    if step.chunk_count:
        # Set first: Kubernetes would add it last, and the other variables could not refer to it.
        path = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
        entries.append({"name": _INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": path}}})
        texts.pop(_INDEX_VARIABLE, None)
        texts |= dict.fromkeys(variables.index_variables, f"$({_INDEX_VARIABLE})")
        shared = escape_variables(json.dumps(variables.parameters, ensure_ascii=False)[:-1])
        comma = ", " if variables.parameters else ""
        texts[PARAMETERS] = f'{shared}{comma}"chunk_id": "$({_INDEX_VARIABLE})"}}'
    if step.foreach:
        texts[ITEMS] = escape_variables(_format_items(step))
    entries += [{"name": name, "value": text} for name, text in texts.items()]
    sources = {name: secret for secret, names in variables.secrets.items() for name in names}
    return entries + [
        build_secret_variable(name, *_split_secret(secret)) for name, secret in sources.items()
    ]


def _format_items(step: Step) -> str:
    return json.dumps(step.foreach, ensure_ascii=False)


def _split_secret(secret: str) -> tuple[str, str]:
    """Return the Secret object and its key for a secret ``key`` or ``object/key``."""
    object_name, _, key = secret.rpartition("/")
    return object_name or SECRET_NAME, key


def _format_quantities(step: Step) -> dict[str, str]:
    cores, memory, gpus = resource_request(step)
    millicores = None if cores is None else round_to_millicores(cores)
    return format_quantities(millicores=millicores, memory=memory, gpus=gpus)
