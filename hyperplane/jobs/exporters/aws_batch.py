"""Exporter to AWS Batch: the requests that the runner sends for the first attempt of each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from hyperplane.jobs.exporters.staged_steps import StagedExporter, StagedStep
from hyperplane.jobs.runners.aws_batch.requests import MAX_ARRAY, plan_submission
from hyperplane.jobs.runners.aws_batch.runner import AwsBatchRunner
from hyperplane.spec.settings import AwsBatchSettings


@dataclass(frozen=True)
class AwsBatchExporter(StagedExporter):
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
    runner_type: ClassVar[type[Any]] = AwsBatchRunner
    most: ClassVar[int] = MAX_ARRAY

    def _plan(self, settings: AwsBatchSettings, staged: StagedStep) -> dict[str, Any]:
        planned = plan_submission(
            staged.commands, staged.step, 1.0, settings, staged.program, staged.files
        )
        return {
            "manifest_url": staged.folder.url(planned.manifest_key),
            "manifest": planned.manifest,
            "register_job_definition": planned.definition,
            "submit_job": planned.job,
        }
