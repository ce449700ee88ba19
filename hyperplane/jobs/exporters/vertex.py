"""Exporter to Vertex AI: the requests that the runner sends for the first attempts of each step."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar

from hyperplane.core.errors import Fault, RequestError
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.exporters.base import Document
from hyperplane.jobs.exporters.staged_steps import StagedStep, render_steps
from hyperplane.jobs.runners.container_steps import find_process_faults
from hyperplane.jobs.runners.vertex.requests import plan_job
from hyperplane.jobs.runners.vertex.runner import VertexRunner
from hyperplane.jobs.runners.vertex.step_checks import find_option_faults
from hyperplane.jobs.store.job_records import Job
from hyperplane.spec.settings import VertexSettings


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
        return render_steps(runner, job, partial(_plan_requests, runner.settings))

    def _create_runner(self) -> VertexRunner:
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return VertexRunner({}, VertexRunner.resolve_options(given))


def _plan_requests(settings: VertexSettings, staged: StagedStep) -> dict[str, Any]:
    planned = [
        plan_job(command, staged.step, 1.0, settings, staged.program, staged.files)
        for command in staged.commands
    ]
    parent = f"projects/{settings.project or 'PROJECT'}/locations/{settings.region}"
    return {
        "manifests": {staged.folder.url(each.manifest_key): each.manifest for each in planned},
        "create_custom_jobs": [{"parent": parent, "body": each.job} for each in planned],
    }
