"""Submission of attempts to Vertex AI, each as one custom job or tuning job."""

from __future__ import annotations

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.attempt_names import attempt_job_name, name_prefix
from hyperplane.jobs.runners.gcp.bucket_task import PlannedBucketJob
from hyperplane.jobs.runners.gcp.gcp_submitter import GcpSubmitter
from hyperplane.jobs.runners.staged_code import TaskFile
from hyperplane.jobs.runners.vertex.requests import plan_job
from hyperplane.jobs.runners.vertex.vertex_job_id import VertexJobId
from hyperplane.spec.settings import VertexSettings


class VertexSubmitter(GcpSubmitter[VertexJobId, VertexSettings]):
    """Submits attempts as custom jobs, and those with tuning as tuning jobs."""

    def _plan(
        self, command: AttemptCommand, step: Step, memory_factor: float, files: list[TaskFile]
    ) -> PlannedBucketJob:
        return plan_job(command, step, memory_factor, self._settings, self._program, files)

    def _job_id(self, command: AttemptCommand, step: Step) -> VertexJobId:
        is_tuning = step.tuning is not None
        return VertexJobId(attempt_job_name(command), name_prefix(command), is_tuning)
