"""Exporter to AWS Batch: the requests that the runner sends for the first attempt of each step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from hyperplane.core.errors import Fault, RequestError
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Resources, Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.execution.cluster_arguments import find_framework_faults
from hyperplane.jobs.execution.step_command import (
    attempt_prefix,
    build_arguments,
    list_units,
    working_folder,
)
from hyperplane.jobs.execution.step_environment import secret_variables, step_variables
from hyperplane.jobs.exporters.base import Document
from hyperplane.jobs.exporters.exported_step import file_stem
from hyperplane.jobs.runners.aws_batch.requests import plan_submission
from hyperplane.jobs.runners.aws_batch.runner import PROGRAM_FILE, AwsBatchRunner
from hyperplane.jobs.runners.aws_batch.staged_code import TaskFile, collect_files
from hyperplane.jobs.runners.aws_batch.step_checks import find_option_faults
from hyperplane.jobs.runners.step_resources import resource_request
from hyperplane.jobs.store.job_records import Job
from hyperplane.platforms.aws.object_staging import parse_staging


@dataclass(frozen=True)
class AwsBatchExporter:
    """Shows the requests of jobs as JSON. Nothing is sent, and no credentials are needed.

    The options are those of the runner with the same names; the others are read from the
    configuration.

    Parameters
    ----------
    region, queue, image, staging, platform, job_role, execution_role, stage, root : str, optional
        Settings of ``hyperplane.runners.aws_batch``.
    """

    region: str | None = None
    queue: str | None = None
    image: str | None = None
    staging: str | None = None
    platform: str | None = None
    job_role: str | None = None
    execution_role: str | None = None
    stage: str | None = None
    root: str | None = None

    name: ClassVar[str] = "aws-batch"

    def find_unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """Return a fault for each part of a pipeline, and each option, that is not supported."""
        try:
            runner = self._create_runner()
        except RequestError as error:
            return list(error.faults)
        faults = [*find_option_faults(runner.settings), *runner.find_unsupported(pipeline)]
        for index, step in enumerate(pipeline.steps):
            where = f"steps[{index}]."
            if step.gang_size:
                is_training = step.kind == "train"
                field = "kind" if is_training else "gang"
                shown = "train" if is_training else str(step.gang)
                faults.append(Fault(f"{where}{field}", shown, "a step of one process on aws-batch"))
            faults += find_framework_faults(step, where.rstrip("."), "aws-batch")
        return faults

    def render(self, job: Job) -> list[Document]:
        """Render one document for each step: its requests, manifest, files and cost."""
        runner = self._create_runner()
        costs = runner.describe_cost(job)
        in_container = runner.with_runtime_paths(job)
        steps = zip(job.pipeline.steps, in_container.pipeline.steps, costs, strict=True)
        return [
            Document(
                f"{file_stem(index, step)}.json",
                _dump(self._render_step(runner, job, in_container, step, moved, cost)),
                "step",
            )
            for index, (step, moved, cost) in enumerate(steps)
        ]

    def _create_runner(self) -> AwsBatchRunner:
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return AwsBatchRunner({}, AwsBatchRunner.resolve_options(given))

    def _render_step(
        self,
        runner: AwsBatchRunner,
        job: Job,
        in_container: Job,
        step: Step,
        moved: Step,
        cost: str,
    ) -> dict[str, Any]:
        settings = runner.settings
        commands = list(_first_attempts(job, in_container, step, moved))
        files = collect_files(commands[0], step.kind, job.pipeline.root, settings)
        program = TaskFile(PROGRAM_FILE.name, PROGRAM_FILE.read_bytes())
        planned = plan_submission(commands, _with_sizes(step), 1.0, settings, program, files)
        folder = parse_staging(str(settings.staging))
        return {
            "step": step.name,
            "depends_on": list(step.depends_on),
            "cost": cost,
            "uploads": {
                file.path: folder.url(folder.content_key(file.content, file.suffix))
                for file in (program, *files)
            },
            "manifest_url": folder.url(planned.manifest_key),
            "manifest": planned.manifest,
            "register_job_definition": planned.definition,
            "submit_job": planned.job,
        }


def _first_attempts(
    job: Job, in_container: Job, step: Step, moved: Step
) -> Iterator[AttemptCommand]:
    """Yield the commands of the attempts that the runner submits first."""
    for unit in list_units(step)[: step.max_parallel or AwsBatchRunner.at_once]:
        yield AttemptCommand(
            build_arguments(in_container, moved, unit, in_container.python),
            {},
            working_folder(in_container.pipeline, moved),
            attempt_prefix(job, unit, 1),
            step_variables(in_container, step, unit, 1),
            dict.fromkeys(secret_variables(dict.fromkeys(step.secrets, "")), ""),
            Path(job.pipeline.root, step.path) if step.path else None,
        )


def _with_sizes(step: Step) -> Step:
    """Return a step with the resources of its pool in place of the pool's name."""
    request = resource_request(step)
    ram_gb = None if request.memory is None else request.memory / 1e9
    sizes = Resources(cores=request.cores, ram_gb=ram_gb, gpus=request.gpus)
    return step.model_copy(update={"resources": sizes})


def _dump(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
