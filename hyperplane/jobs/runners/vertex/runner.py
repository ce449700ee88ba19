"""Runner for Vertex AI: each attempt is a custom job with one container on its own machine.

Each chunk of a step has its own job: in a worker pool of several machines, all end with the first
one, and one that fails ends the others.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any, ClassVar

from hyperplane import config
from hyperplane.core.errors import Fault
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.container_budget import ContainerCosts
from hyperplane.jobs.runners.gcp.gcp_runner import GcpRunner
from hyperplane.jobs.runners.service_job_id import ServiceJobId
from hyperplane.jobs.runners.task_manifest import parse_pairs
from hyperplane.jobs.runners.vertex.cost import container_costs, estimate_cost
from hyperplane.jobs.runners.vertex.machines import task_size
from hyperplane.jobs.runners.vertex.step_checks import (
    find_option_faults,
    find_resource_faults,
    find_step_faults,
)
from hyperplane.jobs.runners.vertex.vertex_client import VertexClient
from hyperplane.jobs.runners.vertex.vertex_job_id import VertexJobId
from hyperplane.jobs.runners.vertex.vertex_process import VertexProcess
from hyperplane.jobs.runners.vertex.vertex_submitter import VertexSubmitter
from hyperplane.jobs.store.job_records import Job
from hyperplane.platforms.gcp.service_check import CheckedService
from hyperplane.platforms.gcp.vertex import SERVICE
from hyperplane.platforms.task_size import TaskSize
from hyperplane.spec.settings import VertexSettings
from hyperplane.spec.settings.base import replace_settings


class VertexRunner(GcpRunner[VertexSettings, VertexClient]):
    """Runs steps as custom jobs; ``options`` are those of :meth:`resolve_options`."""

    name: ClassVar[str] = "vertex"
    title: ClassVar[str] = "Vertex AI"
    service: ClassVar[CheckedService] = SERVICE
    job_id_type: ClassVar[type[ServiceJobId]] = VertexJobId
    #: Training programs; other gangs are refused as parts of a pipeline.
    runs_gangs: ClassVar[bool] = True

    def __init__(self, environment: Mapping[str, str], options: Mapping[str, Any]) -> None:
        super().__init__(environment, VertexSettings(**options))

    @classmethod
    def resolve_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of the configuration, overridden by options of the submission."""
        settings = replace_settings(config.runners().vertex, options, "runner_options")
        return settings.model_dump(mode="json")

    def find_option_faults(self) -> list[Fault]:
        """Return a fault for each setting that is missing, or that Vertex AI refuses."""
        return find_option_faults(self.settings)

    def find_unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """Return a fault for each part of a pipeline that Vertex AI cannot run."""
        return [
            *find_step_faults(pipeline, self.settings),
            *find_resource_faults(pipeline, self.settings),
        ]

    def reattach(self, command: AttemptCommand) -> VertexProcess:
        """Return the process of a job that this or an earlier supervisor created."""
        return VertexProcess(command, self._get_client())

    def describe_cost(self, job: Job) -> list[str]:
        """Return the cost of each step for an hour, before anything is submitted."""
        return [estimate_cost(step, self.settings, self.at_once) for step in job.pipeline.steps]

    def task_size(self, step: Step, memory_factor: float) -> TaskSize | None:
        """Return what the container of a step has; None if no machine is large enough."""
        return task_size(step, memory_factor, self.settings)

    def task_variables(self, step: Step, index: int, count: int) -> dict[str, str]:
        """Return the variables that Vertex AI and the job set in a container.

        ``CLUSTER_SPEC`` has the replica of the job, which is the only one.
        """
        del step, index, count
        replica = "cmle-training-workerpool0-rehearsal-0:2222"
        cluster = {
            "cluster": {"workerpool0": [replica]},
            "environment": "cloud",
            "task": {"type": "workerpool0", "index": 0},
        }
        return {
            "CLUSTER_SPEC": json.dumps(cluster),
            "CLOUD_ML_JOB_ID": str(uuid.uuid4().int % 10**19),
            "CLOUD_ML_PROJECT_ID": self.settings.project or "rehearsal",
            **parse_pairs(self.settings.environ),
        }

    def _costs(self) -> ContainerCosts:
        return container_costs(self.settings)

    def _create_client(self) -> VertexClient:
        session = self._session()
        return VertexClient(session, self._staging(session))

    def _create_submitter(self, client: VertexClient) -> VertexSubmitter:
        return VertexSubmitter(client, self.settings, self._root)
