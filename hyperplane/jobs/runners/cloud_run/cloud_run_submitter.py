"""Submission of attempts to Cloud Run, each as one job."""

from __future__ import annotations

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.attempt_names import attempt_job_name, owning_job_id
from hyperplane.jobs.runners.cloud_run.cloud_run_job_id import CloudRunJobId
from hyperplane.jobs.runners.cloud_run.requests import plan_job
from hyperplane.jobs.runners.gcp.bucket_task import PlannedBucketJob
from hyperplane.jobs.runners.gcp.gcp_submitter import GcpSubmitter
from hyperplane.jobs.runners.staged_code import TaskFile
from hyperplane.spec.settings import CloudRunSettings


class CloudRunSubmitter(GcpSubmitter[CloudRunJobId, CloudRunSettings]):
    """Submits attempts as jobs."""

    def _plan(
        self, command: AttemptCommand, step: Step, memory_factor: float, files: list[TaskFile]
    ) -> PlannedBucketJob:
        return plan_job(command, step, memory_factor, self._settings, self._program, files)

    def _job_id(self, command: AttemptCommand, step: Step) -> CloudRunJobId:
        del step
        return CloudRunJobId(attempt_job_name(command), owning_job_id(command))
