"""Runner for AWS Glue: each attempt is a job with one run, which is deleted after its end.

Each chunk of a step has its own job: a job with one run at a time refuses a second start, which
Glue has no other means against.
"""

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
from hyperplane.jobs.runners.glue.cost import container_costs, estimate_cost
from hyperplane.jobs.runners.glue.glue_client import GlueClient
from hyperplane.jobs.runners.glue.glue_job_id import GlueJobId
from hyperplane.jobs.runners.glue.glue_process import GlueProcess
from hyperplane.jobs.runners.glue.glue_submitter import GlueSubmitter
from hyperplane.jobs.runners.glue.requests import SHELL_PYTHON, step_worker
from hyperplane.jobs.runners.glue.step_checks import (
    find_option_faults,
    find_resource_faults,
    find_step_faults,
)
from hyperplane.jobs.runners.service_job_id import ServiceJobId
from hyperplane.platforms.aws.glue_check import check_glue
from hyperplane.platforms.aws.glue_workers import PYTHON_SHELL
from hyperplane.platforms.aws.session import AwsSession
from hyperplane.platforms.task_size import TaskSize
from hyperplane.spec.settings import GlueSettings
from hyperplane.spec.settings.base import replace_settings


class GlueRunner(DriverRunner[GlueSettings, GlueClient]):
    """Runs steps as jobs of AWS Glue; ``options`` are those of :meth:`resolve_options`."""

    name: ClassVar[str] = "glue"
    title: ClassVar[str] = "AWS Glue"
    vendor: ClassVar[str] = "Amazon"
    max_array: ClassVar[int] = 1
    at_once: ClassVar[int] = 50
    job_id_type: ClassVar[type[ServiceJobId]] = GlueJobId
    client_type: ClassVar[type[Any]] = GlueClient

    def __init__(self, environment: Mapping[str, str], options: Mapping[str, Any]) -> None:
        super().__init__(environment, GlueSettings(**options))

    @classmethod
    def resolve_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of the configuration, overridden by options of the submission."""
        settings = replace_settings(config.runners().glue, options, "runner_options")
        return settings.model_dump(mode="json")

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

    def task_size(self, step: Step, memory_factor: float) -> TaskSize | None:
        """Return what the program of a step has; None if no machine is large enough."""
        worker = step_worker(step, memory_factor, self.settings)
        return None if worker is None else TaskSize(worker.cores, worker.memory)

    def _check_service(self, session: AwsSession) -> list[Fault]:
        return check_glue(session, self.settings)

    def describe_rehearsal(self) -> list[str]:
        """Return in what containers of the service differ from a rehearsal, as lines of text."""
        if self.settings.job_type == PYTHON_SHELL:
            return [
                f"a job of type {PYTHON_SHELL} has Python {SHELL_PYTHON} and the libraries of Glue"
            ]
        return [f"there is no Spark here; the job has that of Glue {self.settings.glue_version}"]

    def _estimate_cost(self, step: Step, region: str | None) -> str:
        return estimate_cost(step, self.settings, region, self.at_once)

    def _find_costs(self, region: str | None) -> ContainerCosts:
        return container_costs(self.settings, region)

    def _create_submitter(self, client: GlueClient) -> GlueSubmitter:
        return GlueSubmitter(client, self.settings, self._root)
