"""Exporter to Vertex AI: the requests that the runner sends for the first attempts of each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from hyperplane.jobs.exporters.gcp import GcpExporter
from hyperplane.jobs.exporters.staged_steps import StagedStep
from hyperplane.jobs.runners.gcp.bucket_task import PlannedBucketJob
from hyperplane.jobs.runners.vertex.requests import plan_job
from hyperplane.jobs.runners.vertex.runner import VertexRunner
from hyperplane.spec.settings import VertexSettings


@dataclass(frozen=True)
class VertexExporter(GcpExporter):
    """Shows the requests of custom jobs.

    Parameters
    ----------
    series, machine_type, gpu_type : str, optional
        Settings of ``hyperplane.runners.vertex``, besides those of :class:`GcpExporter`.
    """

    series: str | None = None
    machine_type: str | None = None
    gpu_type: str | None = None

    name: ClassVar[str] = "vertex"
    runner_type: ClassVar[type[Any]] = VertexRunner
    runs_programs: ClassVar[bool] = True
    requests: ClassVar[str] = "create_custom_jobs"

    def _plan_jobs(self, settings: VertexSettings, staged: StagedStep) -> list[PlannedBucketJob]:
        return [
            plan_job(command, staged.step, 1.0, settings, staged.program, staged.files)
            for command in staged.commands
        ]

    def _show(self, job: dict[str, Any]) -> dict[str, Any]:
        return {"body": job}
