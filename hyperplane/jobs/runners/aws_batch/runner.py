"""Runner for AWS Batch: each attempt is a job with one container, or a child of an array job.

Attempts at chunks of a step that start together are one array job.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, ClassVar

from hyperplane import config
from hyperplane.core.errors import Fault
from hyperplane.core.optional import is_installed
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.execution.resource_allocator import ResourceAllocator
from hyperplane.jobs.runners.aws_batch.batch_client import BatchClient
from hyperplane.jobs.runners.aws_batch.batch_job_id import BatchJobId
from hyperplane.jobs.runners.aws_batch.batch_process import BatchProcess
from hyperplane.jobs.runners.aws_batch.batch_submitter import BatchSubmitter
from hyperplane.jobs.runners.aws_batch.cost import container_costs, estimate_cost
from hyperplane.jobs.runners.aws_batch.requests import MAX_ARRAY, container_variables, task_size
from hyperplane.jobs.runners.aws_batch.step_checks import (
    find_option_faults,
    find_resource_faults,
    find_step_faults,
)
from hyperplane.jobs.runners.aws_client import find_region, open_aws_session, open_s3_staging
from hyperplane.jobs.runners.container_budget import ContainerCosts
from hyperplane.jobs.runners.service_job_id import ServiceJobId
from hyperplane.jobs.runners.service_runner import ServiceRunner
from hyperplane.jobs.store.job_records import Job
from hyperplane.platforms.aws.environment_session import EXTRA
from hyperplane.platforms.aws.service_check import ServiceReport, check_service
from hyperplane.platforms.task_size import TaskSize
from hyperplane.spec.settings import AwsBatchSettings
from hyperplane.spec.settings.base import replace_settings


class AwsBatchRunner(ServiceRunner[AwsBatchSettings, BatchClient]):
    """Runs steps as jobs of AWS Batch; ``options`` are those of :meth:`resolve_options`."""

    name: ClassVar[str] = "aws-batch"
    title: ClassVar[str] = "AWS Batch"
    vendor: ClassVar[str] = "Amazon"
    max_array: ClassVar[int] = MAX_ARRAY
    at_once: ClassVar[int] = 500
    job_id_type: ClassVar[type[ServiceJobId]] = BatchJobId

    def __init__(self, environment: Mapping[str, str], options: Mapping[str, Any]) -> None:
        super().__init__(environment, AwsBatchSettings(**options))
        self._report: ServiceReport | None = None

    @classmethod
    def resolve_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of the configuration, overridden by options of the submission."""
        settings = replace_settings(config.runners().aws_batch, options, "runner_options")
        return settings.model_dump(mode="json")

    def unavailable_reason(self) -> str:
        """Return what prevents jobs: options, credentials, queue, image and bucket; all at once."""
        if not is_installed("boto3"):
            return f"install boto3 with: pip install 'hyperplane[{EXTRA}]'"
        faults = self.find_option_faults()
        if not faults:
            session = open_aws_session(self.settings, self._environment)
            self._report = check_service(session, self.settings)
            faults = self._report.faults
        return "\n".join(map(str, faults))

    def find_option_faults(self) -> list[Fault]:
        """Return a fault for each setting that is missing, or that Batch refuses."""
        return find_option_faults(self.settings)

    def find_unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """Return a fault for each part of a pipeline that Batch cannot run."""
        environments = self._report.environments if self._report else ()
        return [
            *find_step_faults(pipeline, self.settings),
            *find_resource_faults(pipeline, self.settings, environments),
        ]

    def chunks_at_once(self, capacity: ResourceAllocator, step: Step, usual: int) -> int:
        """Return the maximum number of chunks in the queue, which may form one array job."""
        return min(super().chunks_at_once(capacity, step, usual), MAX_ARRAY)

    def reattach(self, command: AttemptCommand) -> BatchProcess:
        """Return the process of a job that this or an earlier supervisor submitted."""
        return BatchProcess(command, self._get_client(), self.settings.log_group)

    def describe_cost(self, job: Job) -> list[str]:
        """Return the cost of each step for an hour, before anything is submitted."""
        region = find_region(self.settings, self._environment)
        return [estimate_cost(step, self.settings, region) for step in job.pipeline.steps]

    def describe_quota(self) -> list[str]:
        """Return the vCPUs that the account may have in the compute environments of the queue."""
        if self._report is None:
            session = open_aws_session(self.settings, self._environment)
            self._report = check_service(session, self.settings)
        quotas = [each.quota for each in self._report.environments if each.quota is not None]
        lines = [quota.describe() for quota in dict.fromkeys(quotas)]
        return lines or ["unknown: no compute environment of the queue says its type"]

    def task_size(self, step: Step, memory_factor: float) -> TaskSize | None:
        """Return the size of the container of a step; None if none is large enough."""
        return task_size(step, memory_factor, self.settings)

    def task_variables(self, step: Step, index: int, count: int) -> dict[str, str]:
        """Return the variables that Batch and the job definition set in a container."""
        del step
        variables = {
            "AWS_BATCH_JOB_ID": str(uuid.uuid4()),
            "AWS_BATCH_JQ_NAME": self.settings.queue or "rehearsal",
            "AWS_BATCH_JOB_ATTEMPT": "1",
        }
        if count > 1:
            variables["AWS_BATCH_JOB_ID"] += f":{index}"
            variables["AWS_BATCH_JOB_ARRAY_INDEX"] = str(index)
            variables["AWS_BATCH_JOB_ARRAY_SIZE"] = str(count)
        return variables | container_variables(self.settings)

    def describe_rehearsal(self) -> list[str]:
        """Return in what containers of the service differ from a rehearsal, as lines of text."""
        return [
            "all chunks of a step are one array; Batch has one for the attempts that start together"
        ]

    def _costs(self) -> ContainerCosts:
        return container_costs(self.settings, find_region(self.settings, self._environment))

    def _create_client(self) -> BatchClient:
        session = open_aws_session(self.settings, self._environment)
        return BatchClient(session, open_s3_staging(session, self.settings))

    def _create_submitter(self, client: BatchClient) -> BatchSubmitter:
        return BatchSubmitter(client, self.settings, self._root)
