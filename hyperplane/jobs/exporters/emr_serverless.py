"""Exporter to EMR Serverless: the requests of the runner for the first attempts of each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from hyperplane.jobs.exporters.staged_steps import StagedExporter, StagedStep
from hyperplane.jobs.runners.driver_files import read_driver_program
from hyperplane.jobs.runners.emr_serverless.requests import plan_serverless_run
from hyperplane.jobs.runners.emr_serverless.runner import EmrServerlessRunner
from hyperplane.jobs.runners.staged_code import TaskFile
from hyperplane.spec.settings import EmrServerlessSettings


@dataclass(frozen=True)
class EmrServerlessExporter(StagedExporter):
    """Shows the requests of runs as JSON. Nothing is sent, and no credentials are needed.

    The options are those of the runner with the same names; the others are read from the
    configuration.

    Parameters
    ----------
    region, application, role, staging, python, stage : str, optional
        Settings of ``hyperplane.runners.emr_serverless``.
    workers : int, optional
        Further setting.
    """

    region: str | None = None
    application: str | None = None
    role: str | None = None
    staging: str | None = None
    workers: int | None = None
    python: str | None = None
    stage: str | None = None

    name: ClassVar[str] = "emr-serverless"
    runner_type: ClassVar[type[Any]] = EmrServerlessRunner

    def _scripts(self) -> list[TaskFile]:
        return [read_driver_program()]

    def _plan(self, settings: EmrServerlessSettings, staged: StagedStep) -> dict[str, Any]:
        planned = [
            plan_serverless_run(command, staged.step, 1.0, settings, staged.program, staged.files)
            for command in staged.commands
        ]
        return {
            "manifests": {staged.folder.url(each.manifest_key): each.manifest for each in planned},
            "start_job_runs": [each.request for each in planned],
        }
