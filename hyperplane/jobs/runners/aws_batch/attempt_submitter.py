"""Submission of attempts: upload their files, store the name of the job, and submit it once.

A request is sent again only after a refusal. If it is unknown whether Batch accepted it, the
process of the attempt searches the job by its name, for as long as it may appear.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.aws_batch.batch_client import BatchClient
from hyperplane.jobs.runners.aws_batch.batch_job_id import BatchJobId, forget_job_id
from hyperplane.jobs.runners.aws_batch.requests import plan_submission
from hyperplane.jobs.runners.retry_time import RetryTime
from hyperplane.jobs.runners.service_client import finish
from hyperplane.jobs.runners.staged_code import TaskFile, collect_files
from hyperplane.jobs.runners.task_manifest import dump_manifest
from hyperplane.platforms.aws.errors import AwsError, is_unconfirmed
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


class AttemptSubmitter:
    """Submits attempts; those at chunks of a step that start together are one array job.

    Parameters
    ----------
    client : BatchClient
        Client of the requests.
    settings : AwsBatchSettings
        Settings of the runner.
    root : str
        Folder of the pipeline on this machine.
    program : TaskFile
        Program of the container.
    """

    def __init__(
        self, client: BatchClient, settings: AwsBatchSettings, root: str, program: TaskFile
    ) -> None:
        self._client, self._settings = client, settings
        self._root, self._program = root, program
        self._batches: RequestBatcher[AttemptRequest, OSError | None] = RequestBatcher(
            self._submit, uncancellable=True
        )

    async def submit(self, request: AttemptRequest) -> None:
        """Submit an attempt, or leave its name for a search if there is no answer.

        If it is cancelled, nothing is sent afterwards, and a job that was already sent is stored.
        Raises OSError if it was not submitted.
        """
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
        files = await client.run(collect_files, commands[0], step, self._root, settings)
        for file in (self._program, *files):
            await client.repeat(client.staging.upload_content, file.content, file.suffix)
        planned = plan_submission(
            commands, step, requests[0].memory_factor, settings, self._program, files
        )
        await client.repeat(
            client.staging.put, planned.manifest_key, dump_manifest(planned.manifest)
        )
        arn = await client.repeat(client.api.register_definition, planned.definition)
        account = await client.repeat(client.api.account)
        job, time_left = {**planned.job, "jobDefinition": arn}, RetryTime(client.errors)
        while True:
            refusal = await finish(asyncio.ensure_future(self._send(commands, job, account)))
            if refusal is None:
                return
            await time_left.wait_after(refusal)

    async def _send(
        self, commands: Sequence[AttemptCommand], job: dict[str, Any], account: str
    ) -> AwsError | None:
        """Send a submission once; return the error if Batch refuses it.

        The name of the job is stored before the request, and its id after it.
        """
        name, queue, is_array = job["jobName"], job["jobQueue"], len(commands) > 1
        ids = [
            BatchJobId(name, queue, index if is_array else None, account=account)
            for index in range(len(commands))
        ]
        submitted = ""
        try:
            _write_ids(commands, ids)
            submitted = await self._client.submit(job)
        except AwsError as error:
            if not is_unconfirmed(error):
                _forget_ids(commands)
                return error
        except OSError:  # such as a full disk
            _forget_ids(commands)
            raise
        # The job may run from here on: without its id, it is found by the name.
        with suppress(OSError):
            _write_ids(commands, [each.with_id(submitted) for each in ids])
        return None


def _write_ids(commands: Sequence[AttemptCommand], ids: Sequence[BatchJobId]) -> None:
    now = time.time()
    for command, job_id in zip(commands, ids, strict=True):
        replace(job_id, written=now).write(command)


def _forget_ids(commands: Sequence[AttemptCommand]) -> None:
    for command in commands:
        forget_job_id(command)


async def _wait_until_cancelled(requests: Sequence[AttemptRequest]) -> None:
    """Wait until the starts of all attempts were cancelled."""
    for request in requests:
        await request.cancelled.wait()
