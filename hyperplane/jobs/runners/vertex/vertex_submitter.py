"""Submission of attempts to Vertex AI, each as one custom job."""

from __future__ import annotations

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.attempt_names import name_prefix
from hyperplane.jobs.runners.service_submitter import ServiceSubmitter
from hyperplane.jobs.runners.vertex.requests import plan_job
from hyperplane.jobs.runners.vertex.vertex_job_id import VertexJobId
from hyperplane.spec.settings import VertexSettings


class VertexSubmitter(ServiceSubmitter[VertexJobId, VertexSettings]):
    """Submits attempts; the files of those that start together are uploaded once."""

    async def submit(self, command: AttemptCommand, step: Step, memory_factor: float) -> None:
        """Submit an attempt, or leave its display name for a search if there is no answer.

        If it is cancelled, nothing is sent afterwards, and a job that was already created is
        stored. Raises OSError if it was not created.
        """
        files = await self._upload_shared_files(command, step)
        planned = plan_job(command, step, memory_factor, self._settings, self._program, files)
        await self._upload_manifest(planned.manifest_key, planned.manifest)
        job_id = VertexJobId(planned.job["displayName"], name_prefix(command))
        await self._create([command], [job_id], planned.job)
