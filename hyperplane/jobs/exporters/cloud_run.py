"""Exporter to Cloud Run: the requests that the runner sends for the first attempts of each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from hyperplane.jobs.exporters.gcp import GcpExporter
from hyperplane.jobs.exporters.staged_steps import StagedStep
from hyperplane.jobs.runners.cloud_run.requests import plan_job
from hyperplane.jobs.runners.cloud_run.runner import CloudRunRunner
from hyperplane.jobs.runners.gcp.bucket_task import PlannedBucketJob
from hyperplane.platforms.gcp.cloud_run import creation_body
from hyperplane.spec.settings import CloudRunSettings


@dataclass(frozen=True)
class CloudRunExporter(GcpExporter):
    """Shows the requests of jobs of Cloud Run."""

    name: ClassVar[str] = "cloud-run"
    runner_type: ClassVar[type[Any]] = CloudRunRunner
    requests: ClassVar[str] = "create_jobs"

    def _plan_jobs(self, settings: CloudRunSettings, staged: StagedStep) -> list[PlannedBucketJob]:
        return [
            plan_job(command, staged.step, 1.0, settings, staged.program, staged.files)
            for command in staged.commands
        ]

    def _show(self, job: dict[str, Any]) -> dict[str, Any]:
        return {"jobId": job["jobId"], "body": creation_body(job["job"])}
