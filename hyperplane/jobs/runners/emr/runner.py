"""Runner for Amazon EMR: each attempt is a step, with its own cluster or that of the user."""

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
from hyperplane.jobs.runners.emr.cost import container_costs, estimate_cost
from hyperplane.jobs.runners.emr.emr_client import EmrClient
from hyperplane.jobs.runners.emr.emr_job_id import EmrJobId
from hyperplane.jobs.runners.emr.emr_process import EmrProcess
from hyperplane.jobs.runners.emr.emr_submitter import EmrSubmitter
from hyperplane.jobs.runners.emr.requests import step_instance
from hyperplane.jobs.runners.emr.step_checks import (
    find_option_faults,
    find_resource_faults,
    find_step_faults,
)
from hyperplane.jobs.runners.service_job_id import ServiceJobId
from hyperplane.platforms.aws.emr_check import check_emr
from hyperplane.platforms.aws.session import AwsSession
from hyperplane.platforms.task_size import TaskSize
from hyperplane.spec.settings import EmrSettings
from hyperplane.spec.settings.base import replace_settings


class EmrRunner(DriverRunner[EmrSettings, EmrClient]):
    """Runs steps of jobs as steps of EMR; ``options`` are those of :meth:`resolve_options`."""

    name: ClassVar[str] = "emr"
    title: ClassVar[str] = "Amazon EMR"
    vendor: ClassVar[str] = "Amazon"
    max_array: ClassVar[int] = 1
    at_once: ClassVar[int] = 20
    job_id_type: ClassVar[type[ServiceJobId]] = EmrJobId
    client_type: ClassVar[type[Any]] = EmrClient

    def __init__(self, environment: Mapping[str, str], options: Mapping[str, Any]) -> None:
        super().__init__(environment, EmrSettings(**options))

    @classmethod
    def resolve_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of the configuration, overridden by options of the submission."""
        settings = replace_settings(config.runners().emr, options, "runner_options")
        return settings.model_dump(mode="json")

    def find_option_faults(self) -> list[Fault]:
        """Return a fault for each setting that is missing, or that has no effect."""
        return find_option_faults(self.settings)

    def find_unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """Return a fault for each part of a pipeline that EMR cannot run."""
        return [
            *find_step_faults(pipeline, self.settings),
            *find_resource_faults(pipeline, self.settings),
        ]

    def reattach(self, command: AttemptCommand) -> EmrProcess:
        """Return the process of a run that this or an earlier supervisor started."""
        return EmrProcess(command, self._get_client())

    def task_size(self, step: Step, memory_factor: float) -> TaskSize | None:
        """Return what the program of a step has; None if no machine is large enough."""
        instance = step_instance(step, memory_factor, self.settings)
        return None if instance is None else TaskSize(instance.cores, instance.memory)

    def describe_rehearsal(self) -> list[str]:
        """Return in what the service differs from a rehearsal, as lines of text."""
        return [f"there is no Spark here; the step has that of {self.settings.release}"]

    def _check_service(self, session: AwsSession) -> list[Fault]:
        return check_emr(session, self.settings)

    def _estimate_cost(self, step: Step, region: str | None) -> str:
        return estimate_cost(step, self.settings, region, self.at_once)

    def _find_costs(self, region: str | None) -> ContainerCosts:
        return container_costs(self.settings, region)

    def _create_submitter(self, client: EmrClient) -> EmrSubmitter:
        return EmrSubmitter(client, self.settings, self._root)
