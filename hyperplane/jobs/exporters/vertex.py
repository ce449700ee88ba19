"""Exporter to Vertex AI: the requests that the runner sends for the first attempts of each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from hyperplane.jobs.exporters.staged_steps import StagedExporter, StagedStep
from hyperplane.jobs.runners.vertex.requests import plan_job
from hyperplane.jobs.runners.vertex.runner import VertexRunner
from hyperplane.spec.settings import VertexSettings


@dataclass(frozen=True)
class VertexExporter(StagedExporter):
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
    runner_type: ClassVar[type[Any]] = VertexRunner
    runs_programs: ClassVar[bool] = True

    def _plan(self, settings: VertexSettings, staged: StagedStep) -> dict[str, Any]:
        planned = [
            plan_job(command, staged.step, 1.0, settings, staged.program, staged.files)
            for command in staged.commands
        ]
        parent = f"projects/{settings.project or 'PROJECT'}/locations/{settings.region}"
        return {
            "manifests": {staged.folder.url(each.manifest_key): each.manifest for each in planned},
            "create_custom_jobs": [{"parent": parent, "body": each.job} for each in planned],
        }
