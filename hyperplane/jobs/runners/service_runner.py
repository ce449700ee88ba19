"""Base class of runners whose attempts are jobs of a service, with one container each.

The supervisor uploads the files of an attempt, creates its job when the dependencies are done,
copies the log and records how it ended, and submits the next attempt. If the supervisor is killed,
the jobs continue, and the next supervisor finds them by the ids, or the names, that it stored
before their creation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeVar

from hyperplane.core.errors import Fault
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.base import RemoteQueueMixin, StepProcess
from hyperplane.jobs.runners.container_budget import (
    ContainerCosts,
    Price,
    find_budget_faults,
    find_pool_price,
)
from hyperplane.jobs.runners.service_job_id import ServiceJobId
from hyperplane.jobs.runners.staged_code import StagedCodeSettings
from hyperplane.jobs.runners.task_manifest import with_reports
from hyperplane.jobs.step_wrapper import USAGE_SUFFIX
from hyperplane.jobs.store.job_records import Job

_PYTHON = "python"


class ServiceRunnerSettings(StagedCodeSettings, Protocol):
    """Settings of a runner of a service."""

    @property
    def staging(self) -> str | None:
        """Folder of a bucket for the files of tasks."""
        ...

    @property
    def budget(self) -> str | None:
        """The most that a job may cost."""
        ...


class Closable(Protocol):
    """Client of the requests."""

    def close(self) -> None:
        """End the threads of the requests."""
        ...


class Submitter(Protocol):
    """Creates the jobs of attempts."""

    async def submit(self, command: AttemptCommand, step: Step, memory_factor: float) -> None:
        """Submit an attempt; raise OSError if it was not submitted."""
        ...


SettingsT = TypeVar("SettingsT", bound=ServiceRunnerSettings)
ClientT = TypeVar("ClientT", bound=Closable)


class ServiceRunner(RemoteQueueMixin, ABC, Generic[SettingsT, ClientT]):
    """Runs steps as jobs of a service.

    Parameters
    ----------
    environment : mapping of str to str
        Environment of the submission.
    settings : ServiceRunnerSettings
        Settings of the runner.
    """

    #: Name of the service.
    title: ClassVar[str]
    #: Class of the ids that are stored beside the files of attempts.
    job_id_type: ClassVar[type[ServiceJobId]]

    def __init__(self, environment: Mapping[str, str], settings: SettingsT) -> None:
        self.settings, self._environment = settings, environment
        self._client: ClientT | None = None
        self._submitter: Submitter | None = None
        #: Folder of the pipeline on this machine.
        self._root = ""

    @abstractmethod
    def find_option_faults(self) -> list[Fault]:
        """Return a fault for each setting that is missing, or that the service refuses."""

    @abstractmethod
    def reattach(self, command: AttemptCommand) -> StepProcess:
        """Return the process of a job that this or an earlier supervisor created."""

    @abstractmethod
    def _create_client(self) -> ClientT:
        """Return a client of the service and its bucket."""

    @abstractmethod
    def _create_submitter(self, client: ClientT) -> Submitter:
        """Return a submitter of attempts."""

    @abstractmethod
    def _costs(self) -> ContainerCosts:
        """Return the budget of the settings, with the sizes and prices of containers."""

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

    def describe_quota(self) -> list[str]:
        """Return that the quotas of the account are unknown, unless the runner can ask them."""
        return [f"unknown: {self.title} is not asked; see its quotas in the console"]

    def describe_rehearsal(self) -> list[str]:
        """Return in what containers of the service differ from a rehearsal, as lines of text."""
        return []

    async def start(self, command: AttemptCommand, step: Step, memory_factor: float) -> StepProcess:
        """Upload the files of an attempt and submit it."""
        command.attempt_prefix.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for suffix in (".exit", ".pid", USAGE_SUFFIX):
            command.file(suffix).unlink(missing_ok=True)
        self.job_id_type.forget(command)
        if step.kind == "notebook":
            command.file(".notebook").write_text(str(command.notebook))
        command = with_reports(command)
        if self._submitter is None:
            self._submitter = self._create_submitter(self._get_client())
        await self._submitter.submit(command, step, memory_factor)
        return self.reattach(command)

    def find_budget_faults(self, job: Job) -> list[Fault]:
        """Return the faults of a job that may cost more than the setting ``budget``."""
        if self.settings.budget is None:
            return []
        return find_budget_faults(job, self._costs())

    def hourly_price(self, step: Step, memory_factor: float) -> Price:
        """Return the price of the container of a step, or that of its pool."""
        price = self._costs().price(step, memory_factor)
        return find_pool_price(step, price.source) if price.amount is None else price

    @property
    def image(self) -> str:
        """The image of the containers; empty if the settings name none."""
        return str(getattr(self.settings, "image", None) or "")

    async def close(self) -> None:
        """End the threads of the requests."""
        if self._client is not None:
            self._client.close()
            self._client = self._submitter = None

    def _get_client(self) -> ClientT:
        if self._client is None:
            self._client = self._create_client()
        return self._client


def _with_package(step: Step, root: str, *, only_name: bool) -> Step:
    """Return a training program with the path of its package in a container, others unchanged."""
    if step.package_path is None:
        return step
    package = Path(root, step.package_path)
    inside = package.is_relative_to(root) and not only_name
    path = package.relative_to(root) if inside else Path(package.name)
    return step.model_copy(update={"package_path": str(path)})
