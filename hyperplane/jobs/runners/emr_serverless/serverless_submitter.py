"""Submission of attempts to EMR Serverless, each as one run."""

from __future__ import annotations

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.driver_files import read_driver_program
from hyperplane.jobs.runners.emr_serverless.requests import plan_serverless_run
from hyperplane.jobs.runners.emr_serverless.serverless_client import ServerlessClient
from hyperplane.jobs.runners.emr_serverless.serverless_job_id import ServerlessJobId
from hyperplane.jobs.runners.service_submitter import ServiceSubmitter
from hyperplane.spec.settings import EmrServerlessSettings


class ServerlessSubmitter(ServiceSubmitter[ServerlessJobId, EmrServerlessSettings]):
    """Submits attempts to the application of the settings."""

    _client: ServerlessClient

    async def submit(self, command: AttemptCommand, step: Step, memory_factor: float) -> None:
        """Submit an attempt, or leave its name for a search if the request has no answer.

        If it is cancelled, nothing is sent afterwards, and a run that was already started is
        stored. Raises OSError if it was not started.
        """
        client, settings, script = self._client, self._settings, read_driver_program()
        files = await self._upload_shared_files(command, step)
        planned = plan_serverless_run(command, step, memory_factor, settings, self._program, files)
        await client.upload_content(script.content, script.suffix)
        await self._upload_manifest(planned.manifest_key, planned.manifest)
        account = await client.repeat(client.api.account)
        job_id = ServerlessJobId(planned.name, str(settings.application), account=account)
        await self._create([command], [job_id], planned.request)
