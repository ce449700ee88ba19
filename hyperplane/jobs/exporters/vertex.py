"""Exporter to Vertex AI: the requests that the runner sends for the first attempts of each step."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from hyperplane.core.errors import Fault, RequestError
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.exporters.base import Document
from hyperplane.jobs.exporters.exported_step import file_stem
from hyperplane.jobs.runners.container_steps import find_process_faults
from hyperplane.jobs.runners.first_attempts import first_attempts, with_sizes
from hyperplane.jobs.runners.staged_code import TaskFile, collect_files
from hyperplane.jobs.runners.vertex.requests import plan_job
from hyperplane.jobs.runners.vertex.runner import PROGRAM_FILE, VertexRunner
from hyperplane.jobs.runners.vertex.step_checks import find_option_faults
from hyperplane.jobs.store.job_records import Job
from hyperplane.platforms.object_staging import parse_staging


@dataclass(frozen=True)
class VertexExporter:
    """Shows the requests of jobs as JSON. Nothing is sent, and no credentials are needed.

    The options are those of the runner with the same names; the others are read from the
    configuration.

    Parameters
    ----------
    project, region, image, staging, series, machine_type, gpu_type : str, optional
        Settings of ``hyperplane.runners.vertex``.
    service_account, stage, root : str, optional
        Further settings.
    """

    project: str | None = None
    region: str | None = None
    image: str | None = None
    staging: str | None = None
    series: str | None = None
    machine_type: str | None = None
    gpu_type: str | None = None
    service_account: str | None = None
    stage: str | None = None
    root: str | None = None

    name: ClassVar[str] = "vertex"

    def find_unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """Return a fault for each part of a pipeline, and each option, that is not supported."""
        try:
            runner = self._create_runner()
        except RequestError as error:
            return list(error.faults)
        return [
            *find_option_faults(runner.settings),
            *runner.find_unsupported(pipeline),
            *find_process_faults(pipeline, self.name, runs_programs=True),
        ]

    def render(self, job: Job) -> list[Document]:
        """Render one document for each step: its requests, manifests, files and cost."""
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

    def _create_runner(self) -> VertexRunner:
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return VertexRunner({}, VertexRunner.resolve_options(given))

    def _render_step(
        self,
        runner: VertexRunner,
        job: Job,
        in_container: Job,
        step: Step,
        moved: Step,
        cost: str,
    ) -> dict[str, Any]:
        settings = runner.settings
        first = step.max_parallel or runner.at_once
        commands = list(first_attempts(job, in_container, step, moved))[:first]
        files = collect_files(commands[0], step, job.pipeline.root, settings)
        program = TaskFile(PROGRAM_FILE.name, PROGRAM_FILE.read_bytes())
        folder = parse_staging(str(settings.staging))
        planned = [
            plan_job(command, with_sizes(step), 1.0, settings, program, files)
            for command in commands
        ]
        parent = f"projects/{settings.project or 'PROJECT'}/locations/{settings.region}"
        return {
            "step": step.name,
            "depends_on": list(step.depends_on),
            "cost": cost,
            "uploads": {
                file.path: folder.url(folder.content_key(file.content, file.suffix))
                for file in (program, *files)
            },
            "manifests": {folder.url(each.manifest_key): each.manifest for each in planned},
            "create_custom_jobs": [{"parent": parent, "body": each.job} for each in planned],
        }


def _dump(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
