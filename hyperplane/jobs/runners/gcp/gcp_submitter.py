"""Submission of attempts to a service of Google Cloud, each as one job."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.gcp.bucket_task import PlannedBucketJob
from hyperplane.jobs.runners.gcp.gcp_client import GcpClient
from hyperplane.jobs.runners.gcp.gcp_process import GcpJobIdT
from hyperplane.jobs.runners.service_submitter import ServiceSubmitter, SettingsT
from hyperplane.jobs.runners.staged_code import TaskFile


class GcpSubmitter(ServiceSubmitter[GcpJobIdT, SettingsT]):
    """Submits attempts, each as one job of a service of Google Cloud."""

    _client: GcpClient[GcpJobIdT]

    @abstractmethod
    def _plan(
        self, command: AttemptCommand, step: Step, memory_factor: float, files: list[TaskFile]
    ) -> PlannedBucketJob:
        """Return the requests for an attempt; raise OSError if no container is large enough."""

    @abstractmethod
    def _job_id(self, command: AttemptCommand, step: Step) -> GcpJobIdT:
        """Return the id that is stored before the request."""

    async def submit(self, command: AttemptCommand, step: Step, memory_factor: float) -> None:
        """Submit an attempt, or leave its name for a search if there is no answer.

        If it is cancelled, nothing is sent afterwards, and a job that was already created is
        stored. Raises OSError if it was not created.
        """
        files = await self._upload_shared_files(command, step)
        planned = self._plan(command, step, memory_factor, files)
        await self._upload_manifest(planned.manifest_key, planned.manifest)
        project = await self._client.repeat(self._client.session.project)
        job_id = replace(self._job_id(command, step), project=project)
        await self._create([command], [job_id], planned.job)
