"""Runner for AWS Glue: each attempt is a job with one run, which is deleted after its end.

Each chunk of a step has its own job: a job with one run at a time refuses a second start, which
Glue has no other means against.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from hyperplane import config
from hyperplane.core.errors import Fault
from hyperplane.core.optional import is_installed
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.aws_client import find_region, open_aws_session
from hyperplane.jobs.runners.container_budget import ContainerCosts
from hyperplane.jobs.runners.glue.cost import container_costs, estimate_cost
from hyperplane.jobs.runners.glue.glue_client import GlueClient
from hyperplane.jobs.runners.glue.glue_job_id import GlueJobId
from hyperplane.jobs.runners.glue.glue_process import GlueProcess
from hyperplane.jobs.runners.glue.glue_submitter import GlueSubmitter
from hyperplane.jobs.runners.glue.requests import step_variables, step_worker
from hyperplane.jobs.runners.glue.step_checks import (
    find_option_faults,
    find_resource_faults,
    find_step_faults,
)
from hyperplane.jobs.runners.service_job_id import ServiceJobId
from hyperplane.jobs.runners.service_runner import ServiceRunner
from hyperplane.jobs.store.job_records import Job
from hyperplane.platforms.aws.environment_session import EXTRA
from hyperplane.platforms.aws.glue_check import check_glue
from hyperplane.platforms.aws.object_staging import S3Staging
from hyperplane.platforms.object_staging import parse_staging
from hyperplane.platforms.task_size import TaskSize
from hyperplane.spec.settings import GlueSettings
from hyperplane.spec.settings.base import replace_settings


class GlueRunner(ServiceRunner[GlueSettings, GlueClient]):
    """Runs steps as jobs of AWS Glue; ``options`` are those of :meth:`resolve_options`."""

    name: ClassVar[str] = "glue"
    title: ClassVar[str] = "AWS Glue"
    vendor: ClassVar[str] = "Amazon"
    max_array: ClassVar[int] = 1
    at_once: ClassVar[int] = 50
    job_id_type: ClassVar[type[ServiceJobId]] = GlueJobId

    def __init__(self, environment: Mapping[str, str], options: Mapping[str, Any]) -> None:
        super().__init__(environment, GlueSettings(**options))

    @classmethod
    def resolve_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of the configuration, overridden by options of the submission."""
        settings = replace_settings(config.runners().glue, options, "runner_options")
        return settings.model_dump(mode="json")

    def unavailable_reason(self) -> str:
        """Return what prevents jobs: options, credentials, bucket, role and files; all at once."""
        if not is_installed("boto3"):
            return f"install boto3 with: pip install 'hyperplane[{EXTRA}]'"
        faults = self.find_option_faults()
        if not faults:
            faults = check_glue(open_aws_session(self.settings, self._environment), self.settings)
        return "\n".join(map(str, faults))

    def find_option_faults(self) -> list[Fault]:
        """Return a fault for each setting that is missing, or that Glue refuses."""
        return find_option_faults(self.settings)

    def find_unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """Return a fault for each part of a pipeline that Glue cannot run."""
        return [
            *find_step_faults(pipeline, self.settings),
            *find_resource_faults(pipeline, self.settings),
        ]

    def reattach(self, command: AttemptCommand) -> GlueProcess:
        """Return the process of a run that this or an earlier supervisor started."""
        return GlueProcess(command, self._get_client(), self.settings.job_type)

    def describe_cost(self, job: Job) -> list[str]:
        """Return the cost of each step for an hour, before anything is submitted."""
        region = find_region(self.settings, self._environment)
        return [
            estimate_cost(step, self.settings, region, self.at_once) for step in job.pipeline.steps
        ]

    def task_size(self, step: Step, memory_factor: float) -> TaskSize | None:
        """Return what the program of a step has; None if no machine is large enough."""
        worker = step_worker(step, memory_factor, self.settings)
        return None if worker is None else TaskSize(worker.cores, worker.memory)

    def task_variables(self, step: Step, index: int, count: int) -> dict[str, str]:
        """Return the variables that the job sets for the program of a step."""
        del step, index, count
        return step_variables(self.settings)

    def _costs(self) -> ContainerCosts:
        return container_costs(self.settings, find_region(self.settings, self._environment))

    def _create_client(self) -> GlueClient:
        session = open_aws_session(self.settings, self._environment)
        return GlueClient(session, S3Staging(session, parse_staging(str(self.settings.staging))))

    def _create_submitter(self, client: GlueClient) -> GlueSubmitter:
        return GlueSubmitter(client, self.settings, self._root)
