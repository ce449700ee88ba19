"""Submission of attempts to Amazon EMR, each as one step."""

from __future__ import annotations

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.driver_files import read_driver_program
from hyperplane.jobs.runners.emr.emr_client import EmrClient
from hyperplane.jobs.runners.emr.emr_job_id import EmrJobId
from hyperplane.jobs.runners.emr.requests import BOOTSTRAP, plan_run
from hyperplane.jobs.runners.service_submitter import ServiceSubmitter
from hyperplane.spec.settings import EmrSettings


class EmrSubmitter(ServiceSubmitter[EmrJobId, EmrSettings]):
    """Submits attempts, each with a cluster, or to that of the settings."""

    _client: EmrClient

    async def submit(self, command: AttemptCommand, step: Step, memory_factor: float) -> None:
        """Submit an attempt, or leave its name for a search if the request has no answer.

        If it is cancelled, nothing is sent afterwards, and a run that was already started is
        stored. Raises OSError if it was not started.
        """
        client = self._client
        files = await self._upload_shared_files(command, step)
        planned = plan_run(command, step, memory_factor, self._settings, self._program, files)
        for script in (read_driver_program(), BOOTSTRAP):
            await client.upload_content(script.content, script.suffix)
        await self._upload_manifest(planned.manifest_key, planned.manifest)
        account = await client.repeat(client.api.account)
        cluster = self._settings.cluster or ""
        job_id = EmrJobId(planned.name, cluster, account=account)
        await self._create([command], [job_id], planned.request)
