"""Submission of attempts to AWS Batch, as jobs and array jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.aws_batch.batch_client import BatchClient
from hyperplane.jobs.runners.aws_batch.batch_job_id import BatchJobId
from hyperplane.jobs.runners.aws_batch.requests import plan_submission
from hyperplane.jobs.runners.service_submitter import ServiceSubmitter
from hyperplane.platforms.slurm.request_batcher import RequestBatcher
from hyperplane.spec.settings import AwsBatchSettings


@dataclass(frozen=True, eq=False)
class AttemptRequest:
    """An attempt, its step, the factor of its memory, and whether its start was cancelled."""

    command: AttemptCommand
    step: Step
    memory_factor: float
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    def key(self) -> Hashable:
        """Return a key that is equal for attempts of one array job."""
        prefix = self.command.attempt_prefix
        if not prefix.parent.name.startswith("chunk-"):
            return prefix
        return (self.step.name, self.memory_factor, prefix.parent.parent, prefix.name)


class BatchSubmitter(ServiceSubmitter[BatchJobId, AwsBatchSettings]):
    """Submits attempts; those at chunks of a step that start together are one array job."""

    _client: BatchClient

    def __init__(self, client: BatchClient, settings: AwsBatchSettings, root: str) -> None:
        super().__init__(client, settings, root)
        self._batches: RequestBatcher[AttemptRequest, OSError | None] = RequestBatcher(
            self._submit, uncancellable=True
        )

    async def submit(self, command: AttemptCommand, step: Step, memory_factor: float) -> None:
        """Submit an attempt, or leave its name for a search if there is no answer.

        If it is cancelled, nothing is sent afterwards, and a job that was already sent is stored.
        Raises OSError if it was not submitted.
        """
        request = AttemptRequest(command, step, memory_factor)
        submission = asyncio.ensure_future(self._batches.request(request, request.key()))
        try:
            error = await asyncio.shield(submission)
        except asyncio.CancelledError:
            request.cancelled.set()
            submission.cancel()
            await asyncio.wait({submission})
            raise
        if error is not None:
            raise error

    async def _submit(self, requests: list[AttemptRequest]) -> list[OSError | None]:
        """Submit attempts as one job; return the error of each, if any."""
        work = asyncio.ensure_future(self._submit_together(requests))
        cancelled = asyncio.ensure_future(_wait_until_cancelled(requests))
        await asyncio.wait({work, cancelled}, return_when=asyncio.FIRST_COMPLETED)
        cancelled.cancel()
        work.cancel()  # no effect if it is done
        error: OSError | None = None
        try:
            await work
        except OSError as refusal:
            error = refusal
        except asyncio.CancelledError:
            if not work.cancelled():  # this coroutine is cancelled, not its work
                raise
        return [error for _ in requests]

    async def _submit_together(self, requests: list[AttemptRequest]) -> None:
        client, settings = self._client, self._settings
        commands, step = [each.command for each in requests], requests[0].step
        files = await self._upload_files(commands[0], step)
        planned = plan_submission(
            commands, step, requests[0].memory_factor, settings, self._program, files
        )
        await self._upload_manifest(planned.manifest_key, planned.manifest)
        arn = await client.repeat(client.api.register_definition, planned.definition)
        account = await client.repeat(client.api.account)
        job, is_array = {**planned.job, "jobDefinition": arn}, len(commands) > 1
        ids = [
            BatchJobId(
                job["jobName"], job["jobQueue"], index if is_array else None, account=account
            )
            for index in range(len(commands))
        ]
        await self._create(commands, ids, job)


async def _wait_until_cancelled(requests: Sequence[AttemptRequest]) -> None:
    """Wait until the starts of all attempts were cancelled."""
    for request in requests:
        await request.cancelled.wait()
