"""Exporter to AWS Batch: the requests that the runner sends for the first attempt of each step."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar

from hyperplane.core.errors import Fault, RequestError
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.exporters.base import Document
from hyperplane.jobs.exporters.staged_steps import StagedStep, render_steps
from hyperplane.jobs.runners.aws_batch.requests import MAX_ARRAY, plan_submission
from hyperplane.jobs.runners.aws_batch.runner import AwsBatchRunner
from hyperplane.jobs.runners.aws_batch.step_checks import find_option_faults
from hyperplane.jobs.runners.container_steps import find_process_faults
from hyperplane.jobs.store.job_records import Job
from hyperplane.spec.settings import AwsBatchSettings


@dataclass(frozen=True)
class AwsBatchExporter:
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

    def find_unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """Return a fault for each part of a pipeline, and each option, that is not supported."""
        try:
            runner = self._create_runner()
        except RequestError as error:
            return list(error.faults)
        return [
            *find_option_faults(runner.settings),
            *runner.find_unsupported(pipeline),
            *find_process_faults(pipeline, self.name),
        ]

    def render(self, job: Job) -> list[Document]:
        """Render one document for each step: its requests, manifest, files and cost."""
        runner = self._create_runner()
        plan = partial(_plan_requests, runner.settings)
        return render_steps(runner, job, plan, MAX_ARRAY)

    def _create_runner(self) -> AwsBatchRunner:
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return AwsBatchRunner({}, AwsBatchRunner.resolve_options(given))


def _plan_requests(settings: AwsBatchSettings, staged: StagedStep) -> dict[str, Any]:
    planned = plan_submission(
        staged.commands, staged.step, 1.0, settings, staged.program, staged.files
    )
    return {
        "manifest_url": staged.folder.url(planned.manifest_key),
        "manifest": planned.manifest,
        "register_job_definition": planned.definition,
        "submit_job": planned.job,
    }
