"""Exporter to Cloud Run: the requests that the runner sends for the first attempts of each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from hyperplane.jobs.exporters.staged_steps import StagedExporter, StagedStep
from hyperplane.jobs.runners.cloud_run.requests import plan_job
from hyperplane.jobs.runners.cloud_run.runner import CloudRunRunner
from hyperplane.platforms.gcp.cloud_run import creation_body
from hyperplane.spec.settings import CloudRunSettings


@dataclass(frozen=True)
class CloudRunExporter(StagedExporter):
    """Shows the requests of jobs as JSON. Nothing is sent, and no credentials are needed.

    The options are those of the runner with the same names; the others are read from the
    configuration.

    Parameters
    ----------
    project, region, image, staging, service_account, stage, root : str, optional
        Settings of ``hyperplane.runners.cloud_run``.
    """

    project: str | None = None
    region: str | None = None
    image: str | None = None
    staging: str | None = None
    service_account: str | None = None
    stage: str | None = None
    root: str | None = None

    name: ClassVar[str] = "cloud-run"
    runner_type: ClassVar[type[Any]] = CloudRunRunner

    def _plan(self, settings: CloudRunSettings, staged: StagedStep) -> dict[str, Any]:
        planned = [
            plan_job(command, staged.step, 1.0, settings, staged.program, staged.files)
            for command in staged.commands
        ]
        parent = f"projects/{settings.project or 'PROJECT'}/locations/{settings.region}"
        return {
            "manifests": {staged.folder.url(each.manifest_key): each.manifest for each in planned},
            "create_jobs": [
                {
                    "parent": parent,
                    "jobId": each.job["jobId"],
                    "body": creation_body(each.job["job"]),
                }
                for each in planned
            ],
        }
