"""Submission of attempts to AWS Glue, each as one job with one run."""

from __future__ import annotations

import asyncio

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.driver_files import read_driver_program
from hyperplane.jobs.runners.glue.glue_client import GlueClient
from hyperplane.jobs.runners.glue.glue_job_id import GlueJobId
from hyperplane.jobs.runners.glue.requests import plan_job
from hyperplane.jobs.runners.service_submitter import ServiceSubmitter
from hyperplane.spec.settings import GlueSettings


class GlueSubmitter(ServiceSubmitter[GlueJobId, GlueSettings]):
    """Submits attempts; a job whose run was not started is deleted."""

    _client: GlueClient

    async def submit(self, command: AttemptCommand, step: Step, memory_factor: float) -> None:
        """Submit an attempt, or leave its name for a search if the start has no answer.

        If it is cancelled, nothing is sent afterwards, and a run that was already started is
        stored. Raises OSError if it was not started.
        """
        client, script = self._client, read_driver_program()
        files = await self._upload_shared_files(command, step)
        planned = plan_job(command, step, memory_factor, self._settings, self._program, files)
        await client.upload_content(script.content, script.suffix)
        await self._upload_manifest(planned.manifest_key, planned.manifest)
        account = await client.repeat(client.api.account)
        job_id = GlueJobId(planned.job["Name"], account=account)
        try:
            await self._create([command], [job_id], planned.job)
        except (OSError, asyncio.CancelledError):
            if GlueJobId.read(command) is None:
                await client.delete(job_id.name)
            raise
