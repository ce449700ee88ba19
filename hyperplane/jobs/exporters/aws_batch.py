"""Exporter to AWS Batch: the requests that the runner sends for the first attempt of each step."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from hyperplane.core.errors import Fault, RequestError
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.exporters.base import Document
from hyperplane.jobs.exporters.exported_step import file_stem
from hyperplane.jobs.runners.aws_batch.requests import MAX_ARRAY, plan_submission
from hyperplane.jobs.runners.aws_batch.runner import PROGRAM_FILE, AwsBatchRunner
from hyperplane.jobs.runners.aws_batch.step_checks import find_option_faults
from hyperplane.jobs.runners.container_steps import find_process_faults
from hyperplane.jobs.runners.first_attempts import first_attempts, with_sizes
from hyperplane.jobs.runners.staged_code import TaskFile, collect_files
from hyperplane.jobs.store.job_records import Job
from hyperplane.platforms.object_staging import parse_staging


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
        return [
            *find_option_faults(runner.settings),
            *runner.find_unsupported(pipeline),
            *find_process_faults(pipeline, self.name),
        ]

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
        first = min(step.max_parallel or runner.at_once, MAX_ARRAY)
        commands = list(first_attempts(job, in_container, step, moved))[:first]
        files = collect_files(commands[0], step, job.pipeline.root, settings)
        program = TaskFile(PROGRAM_FILE.name, PROGRAM_FILE.read_bytes())
        planned = plan_submission(commands, with_sizes(step), 1.0, settings, program, files)
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


def _dump(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
