"""Submission of attempts to a service of Google Cloud, each as one job."""

from __future__ import annotations

from abc import abstractmethod

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.gcp.bucket_task import PlannedBucketJob
from hyperplane.jobs.runners.gcp.gcp_client import GcpClient
from hyperplane.jobs.runners.gcp.gcp_process import GcpJobIdT
from hyperplane.jobs.runners.service_submitter import ServiceSubmitter, SettingsT
from hyperplane.jobs.runners.staged_code import TaskFile
from hyperplane.platforms.slurm.request_batcher import RequestBatcher


class GcpSubmitter(ServiceSubmitter[GcpJobIdT, SettingsT]):
    """Submits attempts; the files of those that start together are uploaded once."""

    def __init__(self, client: GcpClient[GcpJobIdT], settings: SettingsT, root: str) -> None:
        super().__init__(client, settings, root)
        #: Attempts at chunks of a step that start together have the same files.
        self._files: RequestBatcher[tuple[AttemptCommand, Step], list[TaskFile]] = RequestBatcher(
            self._upload_files_once
        )

    @abstractmethod
    def _plan(
        self, command: AttemptCommand, step: Step, memory_factor: float, files: list[TaskFile]
    ) -> PlannedBucketJob:
        """Return the requests for an attempt; raise OSError if no container is large enough."""

    @abstractmethod
    def _job_id(self, command: AttemptCommand) -> GcpJobIdT:
        """Return the id that is stored before the request."""

    async def submit(self, command: AttemptCommand, step: Step, memory_factor: float) -> None:
        """Submit an attempt, or leave its name for a search if there is no answer.

        If it is cancelled, nothing is sent afterwards, and a job that was already created is
        stored. Raises OSError if it was not created.
        """
        files = await self._files.request((command, step), (step.name, command.script))
        planned = self._plan(command, step, memory_factor, files)
        await self._upload_manifest(planned.manifest_key, planned.manifest)
        await self._create([command], [self._job_id(command)], planned.job)

    async def _upload_files_once(
        self, attempts: list[tuple[AttemptCommand, Step]]
    ) -> list[list[TaskFile]]:
        """Upload the files of attempts at one step; return them for each attempt."""
        files = await self._upload_files(*attempts[0])
        return [files for _ in attempts]
