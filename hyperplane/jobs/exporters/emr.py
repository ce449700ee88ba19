"""Exporter to Amazon EMR: the requests of the runner for the first attempts of each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from hyperplane.jobs.exporters.staged_steps import StagedExporter, StagedStep
from hyperplane.jobs.runners.driver_files import read_driver_program
from hyperplane.jobs.runners.emr.requests import BOOTSTRAP, plan_run
from hyperplane.jobs.runners.emr.runner import EmrRunner
from hyperplane.jobs.runners.staged_code import TaskFile
from hyperplane.spec.settings import EmrSettings


@dataclass(frozen=True)
class EmrExporter(StagedExporter):
    """Shows the requests of clusters and steps as JSON. Nothing is sent; no credentials are needed.

    The options are those of the runner with the same names; the others are read from the
    configuration.

    Parameters
    ----------
    region, staging, cluster, release, instance_type, python, stage : str, optional
        Settings of ``hyperplane.runners.emr``.
    workers : int, optional
        Further setting.
    """

    region: str | None = None
    staging: str | None = None
    cluster: str | None = None
    release: str | None = None
    instance_type: str | None = None
    workers: int | None = None
    python: str | None = None
    stage: str | None = None

    name: ClassVar[str] = "emr"
    runner_type: ClassVar[type[Any]] = EmrRunner

    def _scripts(self) -> list[TaskFile]:
        return [read_driver_program(), BOOTSTRAP]

    def _plan(self, settings: EmrSettings, staged: StagedStep) -> dict[str, Any]:
        planned = [
            plan_run(command, staged.step, 1.0, settings, staged.program, staged.files)
            for command in staged.commands
        ]
        key = "add_job_flow_steps" if settings.cluster else "run_job_flows"
        return {
            "manifests": {staged.folder.url(each.manifest_key): each.manifest for each in planned},
            key: [each.request for each in planned],
        }
