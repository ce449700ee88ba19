"""Manifests of one attempt: a Kubernetes Job with one pod, and the Secret that it owns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from hyperplane import config
from hyperplane.core.errors import UnknownPool
from hyperplane.core.units import gb_to_bytes
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.attempt_names import attempt_job_name, owning_job_id
from hyperplane.jobs.runners.cluster_command import cluster_words_in_image
from hyperplane.jobs.runners.kubernetes.gang_manifests import add_gang_fields, gang_words
from hyperplane.jobs.runners.kubernetes.step_pod import STEP_NAME, build_step_labels, build_step_pod
from hyperplane.platforms.kubernetes import batch_job, objects
from hyperplane.platforms.kubernetes.objects import escape_variables, parse_pairs
from hyperplane.platforms.kubernetes.pods import (
    build_configured_pod,
    build_secret_variable,
    build_variables,
    format_quantities,
    round_to_millicores,
    select_nodes,
)
from hyperplane.platforms.kubernetes.staged_files import StagedFile
from hyperplane.spec.settings import KubernetesJobSettings


def build_job(
    command: AttemptCommand,
    step: Step,
    memory_factor: float,
    settings: KubernetesJobSettings,
    files: Sequence[StagedFile],
    before: Sequence[str] = (),
) -> dict[str, Any]:
    """Build the Job of an attempt, whose memory is ``memory_factor`` times that of the step.

    ``command`` has the paths of the image, and ``step`` has resources in place of a pool's name.
    ``before`` are words before those of the step.
    """
    name = attempt_job_name(command)
    annotations = {**parse_pairs(settings.annotations), STEP_NAME: step.name}
    pod = build_step_pod(
        step,
        build_configured_pod(settings, _select_nodes(command, settings)),
        image=settings.image,
        pull_policy=settings.image_pull_policy,
        command=[escape_variables(word) for word in (*before, *list_words(command, step))],
        folder=command.folder,
        variables=_build_variables(command, settings),
        quantities=_format_quantities(step, memory_factor),
        files=files,
        secret=name,
    )
    job = batch_job.build_job(
        name,
        {**parse_pairs(settings.labels), **build_step_labels(owning_job_id(command))},
        annotations,
        pod,
        # The supervisor retries, because only it classifies failures.
        retry={
            "backoffLimit": 0,
            "podFailurePolicy": {"rules": [batch_job.build_disruption_rule("FailJob")]},
        },
        pod_annotations=annotations,
    )
    return add_gang_fields(job, step.gang_size) if step.gang_size else job


def list_words(command: AttemptCommand, step: Step) -> list[str]:
    """Return the words of the container of an attempt."""
    gang = bool(step.gang_size)
    before = gang_words(attempt_job_name(command)) if gang else cluster_words_in_image(step)
    return [*before, *command.argv]


def build_secret(
    job: Mapping[str, Any], command: AttemptCommand, files: Sequence[StagedFile]
) -> dict[str, Any] | None:
    """Build the Secret with the secrets and files of an attempt; None if it has neither."""
    contents = {
        name: text.encode(errors="surrogateescape")
        for name, text in command.secret_variables.items()
    }
    contents |= {file.key: file.content for file in files}
    if not contents:
        return None
    return objects.build_secret(job, job["metadata"]["name"], job["metadata"]["labels"], contents)


def _build_variables(
    command: AttemptCommand, settings: KubernetesJobSettings
) -> list[dict[str, Any]]:
    texts = {**parse_pairs(settings.environ), **command.step_variables}
    hidden = command.secret_variables
    plain = {name: text for name, text in texts.items() if name not in hidden}
    secret = attempt_job_name(command)
    return [
        *build_variables(plain),
        *(build_secret_variable(name, secret, name) for name in hidden),
    ]


def _select_nodes(command: AttemptCommand, settings: KubernetesJobSettings) -> dict[str, str]:
    alias = ""
    with suppress(UnknownPool):  # its sizes are stored with the job
        alias = config.get_pool(command.pool).alias if command.pool else ""
    return select_nodes(settings, command.pool, alias)


def _format_quantities(step: Step, memory_factor: float) -> dict[str, str]:
    cores, ram_gb = step.resources.cores, step.resources.ram_gb
    return format_quantities(
        millicores=None if cores is None else round_to_millicores(cores),
        memory=None if ram_gb is None else math.ceil(gb_to_bytes(ram_gb) * memory_factor),
        gpus=step.resources.gpus,
    )
