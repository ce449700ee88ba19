"""Submission of attempts to Vertex AI, each as one custom job."""

from __future__ import annotations

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.attempt_names import name_prefix
from hyperplane.jobs.runners.service_submitter import ServiceSubmitter
from hyperplane.jobs.runners.staged_code import TaskFile
from hyperplane.jobs.runners.vertex.requests import plan_job
from hyperplane.jobs.runners.vertex.vertex_client import VertexClient
from hyperplane.jobs.runners.vertex.vertex_job_id import VertexJobId
from hyperplane.platforms.slurm.request_batcher import RequestBatcher
from hyperplane.spec.settings import VertexSettings


class VertexSubmitter(ServiceSubmitter[VertexJobId, VertexSettings]):
    """Submits attempts; the files of those that start together are uploaded once."""

    def __init__(self, client: VertexClient, settings: VertexSettings, root: str) -> None:
        super().__init__(client, settings, root)
        #: Attempts at chunks of a step that start together have the same files.
        self._files: RequestBatcher[tuple[AttemptCommand, Step], list[TaskFile]] = RequestBatcher(
            self._upload_files_once
        )

    async def submit(self, command: AttemptCommand, step: Step, memory_factor: float) -> None:
        """Submit an attempt, or leave its display name for a search if there is no answer.

        If it is cancelled, nothing is sent afterwards, and a job that was already created is
        stored. Raises OSError if it was not created.
        """
        files = await self._files.request((command, step), (step.name, command.script))
        planned = plan_job(command, step, memory_factor, self._settings, self._program, files)
        await self._upload_manifest(planned.manifest_key, planned.manifest)
        job_id = VertexJobId(planned.job["displayName"], name_prefix(command))
        await self._create([command], [job_id], planned.job)

    async def _upload_files_once(
        self, attempts: list[tuple[AttemptCommand, Step]]
    ) -> list[list[TaskFile]]:
        """Upload the files of attempts at one step; return them for each attempt."""
        files = await self._upload_files(*attempts[0])
        return [files for _ in attempts]
