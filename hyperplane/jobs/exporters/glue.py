"""Exporter to AWS Glue: the requests that the runner sends for the first attempts of each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from hyperplane.jobs.exporters.staged_steps import StagedExporter, StagedStep
from hyperplane.jobs.runners.driver_files import read_driver_program
from hyperplane.jobs.runners.glue.requests import plan_job
from hyperplane.jobs.runners.glue.runner import GlueRunner
from hyperplane.jobs.runners.staged_code import TaskFile
from hyperplane.spec.settings import GlueSettings


@dataclass(frozen=True)
class GlueExporter(StagedExporter):
    """Shows the requests of jobs as JSON. Nothing is sent, and no credentials are needed.

    The options are those of the runner with the same names; the others are read from the
    configuration.

    Parameters
    ----------
    region, role, staging, job_type, glue_version, worker_type, stage : str, optional
        Settings of ``hyperplane.runners.glue``.
    workers : int, optional
        Further setting.
    """

    region: str | None = None
    role: str | None = None
    staging: str | None = None
    job_type: str | None = None
    glue_version: str | None = None
    worker_type: str | None = None
    workers: int | None = None
    stage: str | None = None

    name: ClassVar[str] = "glue"
    runner_type: ClassVar[type[Any]] = GlueRunner

    def _scripts(self) -> list[TaskFile]:
        return [read_driver_program()]

    def _plan(self, settings: GlueSettings, staged: StagedStep) -> dict[str, Any]:
        planned = [
            plan_job(command, staged.step, 1.0, settings, staged.program, staged.files)
            for command in staged.commands
        ]
        return {
            "manifests": {staged.folder.url(each.manifest_key): each.manifest for each in planned},
            "create_jobs": [each.job for each in planned],
            "start_job_runs": [{"JobName": each.job["Name"]} for each in planned],
        }
