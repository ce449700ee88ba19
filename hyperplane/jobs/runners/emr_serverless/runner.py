"""Runner for EMR Serverless: each attempt is a run of an application."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from hyperplane import config
from hyperplane.core.errors import Fault
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.container_budget import ContainerCosts
from hyperplane.jobs.runners.driver_runner import DriverRunner
from hyperplane.jobs.runners.emr_serverless.cost import container_costs, estimate_cost
from hyperplane.jobs.runners.emr_serverless.requests import step_worker
from hyperplane.jobs.runners.emr_serverless.serverless_client import ServerlessClient
from hyperplane.jobs.runners.emr_serverless.serverless_job_id import ServerlessJobId
from hyperplane.jobs.runners.emr_serverless.serverless_process import ServerlessProcess
from hyperplane.jobs.runners.emr_serverless.serverless_submitter import ServerlessSubmitter
from hyperplane.jobs.runners.emr_serverless.step_checks import (
    find_option_faults,
    find_resource_faults,
    find_step_faults,
)
from hyperplane.jobs.runners.service_job_id import ServiceJobId
from hyperplane.platforms.aws.emr_serverless_check import check_emr_serverless
from hyperplane.platforms.aws.emr_serverless_sizes import JVM_MEMORY
from hyperplane.platforms.aws.session import AwsSession
from hyperplane.platforms.task_size import TaskSize
from hyperplane.spec.settings import EmrServerlessSettings
from hyperplane.spec.settings.base import replace_settings


class EmrServerlessRunner(DriverRunner[EmrServerlessSettings, ServerlessClient]):
    """Runs steps as runs of EMR Serverless; ``options`` are those of :meth:`resolve_options`."""

    name: ClassVar[str] = "emr-serverless"
    title: ClassVar[str] = "EMR Serverless"
    vendor: ClassVar[str] = "Amazon"
    max_array: ClassVar[int] = 1
    at_once: ClassVar[int] = 20
    job_id_type: ClassVar[type[ServiceJobId]] = ServerlessJobId
    client_type: ClassVar[type[Any]] = ServerlessClient

    def __init__(self, environment: Mapping[str, str], options: Mapping[str, Any]) -> None:
        super().__init__(environment, EmrServerlessSettings(**options))

    @classmethod
    def resolve_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of the configuration, overridden by options of the submission."""
        settings = replace_settings(config.runners().emr_serverless, options, "runner_options")
        return settings.model_dump(mode="json")

    def find_option_faults(self) -> list[Fault]:
        """Return a fault for each setting that is missing, or that the service refuses."""
        return find_option_faults(self.settings)

    def find_unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """Return a fault for each part of a pipeline that EMR Serverless cannot run."""
        return [
            *find_step_faults(pipeline, self.settings),
            *find_resource_faults(pipeline, self.settings),
        ]

    def reattach(self, command: AttemptCommand) -> ServerlessProcess:
        """Return the process of a run that this or an earlier supervisor started."""
        return ServerlessProcess(command, self._get_client())

    def task_size(self, step: Step, memory_factor: float) -> TaskSize | None:
        """Return what the program of a step has; None if no worker is large enough."""
        worker = step_worker(step, memory_factor, self.settings)
        return None if worker is None else TaskSize(worker.cores, worker.memory - JVM_MEMORY)

    def describe_rehearsal(self) -> list[str]:
        """Return in what the service differs from a rehearsal, as lines of text."""
        return ["there is no Spark here; the job has that of the application"]

    def _check_service(self, session: AwsSession) -> list[Fault]:
        return check_emr_serverless(session, self.settings)

    def _estimate_cost(self, step: Step, region: str | None) -> str:
        return estimate_cost(step, self.settings, region, self.at_once)

    def _find_costs(self, region: str | None) -> ContainerCosts:
        return container_costs(self.settings, region)

    def _create_submitter(self, client: ServerlessClient) -> ServerlessSubmitter:
        return ServerlessSubmitter(client, self.settings, self._root)
