"""Runner for Cloud Run: each attempt is a job with one task, which runs once and is deleted.

Each chunk of a step has its own job: Cloud Run cancels only all tasks of an execution together,
so that one chunk of several in an execution could neither exceed its time nor be repeated alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from hyperplane import config
from hyperplane.core.errors import Fault
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.cloud_run.cloud_run_client import CloudRunClient
from hyperplane.jobs.runners.cloud_run.cloud_run_job_id import CloudRunJobId
from hyperplane.jobs.runners.cloud_run.cloud_run_process import CloudRunProcess
from hyperplane.jobs.runners.cloud_run.cloud_run_submitter import CloudRunSubmitter
from hyperplane.jobs.runners.cloud_run.cost import container_costs, estimate_cost
from hyperplane.jobs.runners.cloud_run.requests import COUNT, INDEX, build_checked_job, task_size
from hyperplane.jobs.runners.cloud_run.step_checks import (
    find_option_faults,
    find_resource_faults,
    find_step_faults,
)
from hyperplane.jobs.runners.container_budget import ContainerCosts
from hyperplane.jobs.runners.gcp.gcp_runner import GcpRunner
from hyperplane.jobs.runners.service_job_id import ServiceJobId
from hyperplane.jobs.runners.task_manifest import parse_pairs
from hyperplane.jobs.store.job_records import Job
from hyperplane.platforms.gcp.cloud_run import SERVICE, CloudRunApi
from hyperplane.platforms.gcp.errors import GcpError
from hyperplane.platforms.gcp.service_check import CheckedService
from hyperplane.platforms.task_size import TaskSize
from hyperplane.spec.settings import CloudRunSettings
from hyperplane.spec.settings.base import replace_settings

#: Name of the job of the check, which is not created.
_CHECKED = "hyperplane-check"


class CloudRunRunner(GcpRunner[CloudRunSettings, CloudRunClient]):
    """Runs steps as jobs of Cloud Run; ``options`` are those of :meth:`resolve_options`."""

    name: ClassVar[str] = "cloud-run"
    title: ClassVar[str] = "Cloud Run"
    service: ClassVar[CheckedService] = SERVICE
    job_id_type: ClassVar[type[ServiceJobId]] = CloudRunJobId

    def __init__(self, environment: Mapping[str, str], options: Mapping[str, Any]) -> None:
        super().__init__(environment, CloudRunSettings(**options))

    @classmethod
    def resolve_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of the configuration, overridden by options of the submission."""
        settings = replace_settings(config.runners().cloud_run, options, "runner_options")
        return settings.model_dump(mode="json")

    def find_option_faults(self) -> list[Fault]:
        """Return a fault for each setting that is missing, or that Cloud Run refuses."""
        return find_option_faults(self.settings)

    def find_unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """Return a fault for each part of a pipeline that Cloud Run cannot run."""
        return [
            *find_step_faults(pipeline, self.settings),
            *find_resource_faults(pipeline, self.settings),
        ]

    def reattach(self, command: AttemptCommand) -> CloudRunProcess:
        """Return the process of a job that this or an earlier supervisor created."""
        return CloudRunProcess(command, self._get_client())

    def describe_cost(self, job: Job) -> list[str]:
        """Return the cost of each step for an hour, before anything is submitted."""
        return [estimate_cost(step, self.settings, self.at_once) for step in job.pipeline.steps]

    def task_size(self, step: Step, memory_factor: float) -> TaskSize | None:
        """Return the size of the container of a step; None if none is large enough."""
        return task_size(step, memory_factor, self.settings)

    def task_variables(self, step: Step, index: int, count: int) -> dict[str, str]:
        """Return the variables that Cloud Run, the job and the program of the container set."""
        del step
        return {
            "CLOUD_RUN_JOB": "rehearsal",
            "CLOUD_RUN_EXECUTION": "rehearsal-x",
            INDEX: str(index),
            COUNT: str(count),
            "CLOUD_RUN_TASK_ATTEMPT": "0",
            **parse_pairs(self.settings.environ),
        }

    def describe_rehearsal(self) -> list[str]:
        """Return in what containers of the service differ from a rehearsal, as lines of text."""
        return [
            *super().describe_rehearsal(),
            "files that a task writes are on a disk; those of Cloud Run are in its memory, and "
            "count against the limit",
        ]

    def _check_service(self) -> list[Fault]:
        """Return all faults of the service, or what Cloud Run says of a job that it checks."""
        faults = super()._check_service()
        if not faults:
            try:
                api = CloudRunApi(self._session())
                api.validate(_CHECKED, build_checked_job(self.settings))
            except GcpError as error:
                faults = [Fault("settings", "", f"a job with them is refused: {error}")]
        return faults

    def _costs(self) -> ContainerCosts:
        return container_costs(self.settings)

    def _create_client(self) -> CloudRunClient:
        session = self._session()
        return CloudRunClient(session, self._staging(session))

    def _create_submitter(self, client: CloudRunClient) -> CloudRunSubmitter:
        return CloudRunSubmitter(client, self.settings, self._root)
