"""Runner for Vertex AI: each attempt is a custom job with one container on its own machine.

The supervisor uploads the files of an attempt, creates its job when the dependencies are done,
copies the log and records how it ended, and submits the next attempt. Each chunk of a step has its
own job: in a worker pool of several machines, all end with the first one, and one that fails ends
the others. If the supervisor is killed, the jobs continue, and the next supervisor finds them by
the names, or the display names, that it stored before their creation.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from hyperplane import config
from hyperplane.core.errors import Fault
from hyperplane.core.optional import is_installed
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners import task_program
from hyperplane.jobs.runners.base import RemoteQueueMixin
from hyperplane.jobs.runners.container_budget import find_budget_faults
from hyperplane.jobs.runners.staged_code import TaskFile
from hyperplane.jobs.runners.task_manifest import parse_pairs
from hyperplane.jobs.runners.vertex.cost import container_costs, estimate_cost
from hyperplane.jobs.runners.vertex.machines import task_size
from hyperplane.jobs.runners.vertex.step_checks import (
    find_option_faults,
    find_resource_faults,
    find_step_faults,
)
from hyperplane.jobs.runners.vertex.vertex_client import VertexClient
from hyperplane.jobs.runners.vertex.vertex_job_id import forget_job_id
from hyperplane.jobs.runners.vertex.vertex_process import VertexProcess
from hyperplane.jobs.runners.vertex.vertex_submitter import VertexSubmitter
from hyperplane.jobs.store.job_records import Job
from hyperplane.platforms.gcp.object_staging import GcsStaging
from hyperplane.platforms.gcp.service_check import check_service
from hyperplane.platforms.gcp.session import EXTRA, GcpSession
from hyperplane.platforms.object_staging import parse_staging
from hyperplane.platforms.task_size import TaskSize
from hyperplane.spec.settings import VertexSettings
from hyperplane.spec.settings.base import replace_settings

#: Program of the container, as an object of the staging folder.
PROGRAM_FILE = Path(str(task_program.__file__))
_PYTHON = "python"
_CLIENT = "googleapiclient"


class VertexRunner(RemoteQueueMixin):
    """Runs steps as custom jobs; ``options`` are those of :meth:`resolve_options`."""

    name: ClassVar[str] = "vertex"
    title: ClassVar[str] = "Vertex AI"
    vendor: ClassVar[str] = "Google"
    max_array: ClassVar[int] = 1
    at_once: ClassVar[int] = 100
    #: Training programs; other gangs are refused as parts of a pipeline.
    runs_gangs: ClassVar[bool] = True

    def __init__(self, environment: Mapping[str, str], options: Mapping[str, Any]) -> None:
        self.settings = VertexSettings(**options)
        self._environment = environment
        self._client: VertexClient | None = None
        self._submitter: VertexSubmitter | None = None
        #: Folder of the pipeline on this machine.
        self._root = ""

    @classmethod
    def resolve_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of the configuration, overridden by options of the submission."""
        settings = replace_settings(config.runners().vertex, options, "runner_options")
        return settings.model_dump(mode="json")

    def unavailable_reason(self) -> str:
        """Return what prevents jobs: options, credentials, permissions, image, bucket; at once."""
        if not is_installed(_CLIENT):
            return f"install google-api-python-client with: pip install 'hyperplane[{EXTRA}]'"
        faults = find_option_faults(self.settings)
        if not faults:
            faults = check_service(self._session(), self.settings)
        return "\n".join(map(str, faults))

    def find_unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """Return a fault for each part of a pipeline that Vertex AI cannot run."""
        return [
            *find_step_faults(pipeline, self.settings),
            *find_resource_faults(pipeline, self.settings),
        ]

    def with_runtime_paths(self, job: Job) -> Job:
        """Return the job with paths relative to the working folder of a task, or in the image."""
        pipeline, settings = job.pipeline, self.settings
        self._root = pipeline.root
        is_file = settings.root is None and settings.stage == "file"
        steps = tuple(
            _with_package(step, pipeline.root, only_name=is_file) for step in pipeline.steps
        )
        if is_file:
            steps = tuple(
                step.model_copy(update={"path": Path(step.path).name, "working_dir": None})
                for step in steps
            )
            pipeline = pipeline.model_copy(update={"working_dir": None})
        moved = pipeline.model_copy(update={"root": settings.root or ".", "steps": steps})
        return replace(job, definition=moved.to_json(), folder=".", python=_PYTHON)

    async def start(
        self, command: AttemptCommand, step: Step, memory_factor: float
    ) -> VertexProcess:
        """Upload the files of an attempt and create its job."""
        command.attempt_prefix.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for suffix in (".exit", ".pid"):
            command.file(suffix).unlink(missing_ok=True)
        forget_job_id(command)
        if step.kind == "notebook":
            command.file(".notebook").write_text(str(command.notebook))
        await self._get_submitter().submit(command, step, memory_factor)
        return self.reattach(command)

    def reattach(self, command: AttemptCommand) -> VertexProcess:
        """Return the process of a job that this or an earlier supervisor created."""
        return VertexProcess(command, self._get_client())

    def describe_cost(self, job: Job) -> list[str]:
        """Return the cost of each step for an hour, before anything is submitted."""
        return [estimate_cost(step, self.settings, self.at_once) for step in job.pipeline.steps]

    def find_budget_faults(self, job: Job) -> list[Fault]:
        """Return the faults of a job that may cost more than the setting ``budget``."""
        return find_budget_faults(job, container_costs(self.settings))

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

    async def close(self) -> None:
        """End the threads of the requests."""
        if self._client is not None:
            self._client.close()
            self._client = self._submitter = None

    def _session(self) -> GcpSession:
        return GcpSession(self.settings.project, self.settings.region, self._environment)

    def _get_client(self) -> VertexClient:
        if self._client is None:
            session = self._session()
            staging = GcsStaging(session, parse_staging(str(self.settings.staging)))
            self._client = VertexClient(session, staging)
        return self._client

    def _get_submitter(self) -> VertexSubmitter:
        if self._submitter is None:
            program = TaskFile(PROGRAM_FILE.name, PROGRAM_FILE.read_bytes())
            self._submitter = VertexSubmitter(
                self._get_client(), self.settings, self._root, program
            )
        return self._submitter


def _with_package(step: Step, root: str, *, only_name: bool) -> Step:
    """Return a training program with the path of its package in a container, others unchanged."""
    if step.package_path is None:
        return step
    package = Path(root, step.package_path)
    inside = package.is_relative_to(root) and not only_name
    path = package.relative_to(root) if inside else Path(package.name)
    return step.model_copy(update={"package_path": str(path)})
