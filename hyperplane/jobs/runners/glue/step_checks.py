"""Faults of options and pipelines that AWS Glue cannot run."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hyperplane.core.errors import Fault, UnknownPool
from hyperplane.jobs.definition.message_formatting import format_value
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.runners.container_steps import find_code_faults
from hyperplane.jobs.runners.glue.requests import JOB_TAG, MAX_MINUTES, step_size, step_worker
from hyperplane.jobs.runners.task_manifest import parse_pairs
from hyperplane.platforms.aws.glue_workers import PYTHON_SHELL, SPARK, WORKERS
from hyperplane.spec.settings import GlueSettings

_SECTION = "hyperplane.runners.glue"
_ADVICE = "set it in the configuration, or with the option {}="
#: Settings without which nothing can be submitted, and what they are.
_REQUIRED = {
    "role": "the ARN of a role that glue.amazonaws.com may assume",
    "staging": "a folder of a bucket, such as s3://bucket/folder",
}
#: Maximum tags of a job, without the one with the id of the job of hyperplane.
_MAX_TAGS = 49
#: Packages that execute a notebook.
_NOTEBOOK_MODULES = ("ipykernel", "nbclient")


def find_option_faults(settings: GlueSettings) -> list[Fault]:
    """Return a fault for each setting that is missing, or that Glue refuses."""
    faults = [
        Fault(f"{_SECTION}.{name}", "nothing", allowed, _ADVICE.format(name))
        for name, allowed in _REQUIRED.items()
        if getattr(settings, name) is None
    ]
    count = len(parse_pairs(settings.tags).keys() - {JOB_TAG})
    if count > _MAX_TAGS:
        allowed = f"at most {_MAX_TAGS} tags, besides {JOB_TAG}, which hyperplane adds"
        faults.append(Fault(f"{_SECTION}.tags", f"{count} tags", allowed))
    if settings.send_package and settings.job_type == PYTHON_SHELL:
        allowed = f"false with job_type {PYTHON_SHELL}, whose Python 3.9 is too old for hyperplane"
        advice = f"set the option job_type={SPARK}"
        faults.append(Fault(f"{_SECTION}.send_package", "true", allowed, advice))
    return faults


def find_step_faults(pipeline: Pipeline, settings: GlueSettings) -> Iterator[Fault]:
    """Yield a fault for each part of a pipeline that a Glue job cannot run."""
    advice = f"name the packages in {_SECTION}.python_modules, and omit the key"
    yield from find_code_faults(pipeline, settings, "glue", advice)
    for step in pipeline.steps:
        where = f"step {step.name!r}: "
        yield from _find_kind_faults(step, settings, where)
        for name in step.secrets:
            advice = "read it in the step from Secrets Manager, with the role of the job"
            allowed = "no secrets on glue, whose arguments and files would show them"
            yield Fault(f"{where}secrets", format_value(name), allowed, advice)
        if step.timeout is not None and step.timeout > MAX_MINUTES * 60:
            allowed = f"at most {MAX_MINUTES * 60} s, the time limit of Glue"
            yield Fault(f"{where}timeout", f"{step.timeout:g} s", allowed)


def _find_kind_faults(step: Step, settings: GlueSettings, where: str) -> Iterator[Fault]:
    """Yield a fault for a kind of a step whose program Glue does not have."""
    if step.kind == "javascript":
        yield Fault(f"{where}kind", step.kind, "a step without Node.js, which Glue does not have")
    if step.kind != "notebook":
        return
    if settings.job_type == PYTHON_SHELL:
        allowed = f"no notebook with job_type {PYTHON_SHELL}, whose Python 3.9 is too old"
        yield Fault(f"{where}kind", step.kind, allowed, f"set the option job_type={SPARK}")
    names = {re.split(r"[^A-Za-z0-9._-]", text)[0].lower() for text in settings.python_modules}
    missing = [name for name in _NOTEBOOK_MODULES if name not in names]
    if missing:
        allowed = f"python_modules with {' and '.join(missing)}, which execute a notebook"
        advice = f"add them to {_SECTION}.python_modules"
        yield Fault(f"{where}kind", step.kind, allowed, advice)


def find_resource_faults(pipeline: Pipeline, settings: GlueSettings) -> Iterator[Fault]:
    """Yield a fault for each step that no machine of Glue can run."""
    largest = WORKERS[settings.job_type][-1]
    for step in pipeline.steps:
        try:
            size = step_size(step, 1.0, settings)
        except UnknownPool:  # reported for all runners, or chosen from earlier runs
            continue
        if step_worker(step, 1.0, settings) is None:
            asked = f"{size.cores:g} cores, {size.memory} MiB, {size.gpus} GPUs"
            allowed = (
                f"at most {largest.cores:g} cores and {largest.memory} MiB ({largest.name}), and "
                f"no GPUs, with job_type {settings.job_type}"
            )
            advice = "request less"
            if settings.job_type == PYTHON_SHELL:
                advice += f", or set the option job_type={SPARK}"
            yield Fault(f"step {step.name!r}: resources", asked, allowed, advice)
