"""Submission of attempts: upload their files, store the name of the job, and create it once.

A request is sent again only after a refusal. If it is unknown whether Vertex AI created the job,
the process of the attempt searches it by its display name, for as long as it may appear.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.attempt_names import name_prefix
from hyperplane.jobs.runners.retry_time import RetryTime
from hyperplane.jobs.runners.service_client import finish
from hyperplane.jobs.runners.staged_code import TaskFile, collect_files
from hyperplane.jobs.runners.task_manifest import dump_manifest
from hyperplane.jobs.runners.vertex.requests import plan_job
from hyperplane.jobs.runners.vertex.vertex_client import VertexClient
from hyperplane.jobs.runners.vertex.vertex_job_id import VertexJobId, forget_job_id
from hyperplane.platforms.gcp.errors import GcpError, is_unconfirmed
from hyperplane.platforms.slurm.request_batcher import RequestBatcher
from hyperplane.spec.settings import VertexSettings


class VertexSubmitter:
    """Submits attempts, each as one custom job.

    Parameters
    ----------
    client : VertexClient
        Client of the requests.
    settings : VertexSettings
        Settings of the runner.
    root : str
        Folder of the pipeline on this machine.
    program : TaskFile
        Program of the container.
    """

    def __init__(
        self, client: VertexClient, settings: VertexSettings, root: str, program: TaskFile
    ) -> None:
        self._client, self._settings = client, settings
        self._root, self._program = root, program
        #: Attempts at chunks of a step that start together have the same files.
        self._files: RequestBatcher[tuple[AttemptCommand, Step], list[TaskFile]] = RequestBatcher(
            self._upload_files
        )

    async def submit(self, command: AttemptCommand, step: Step, memory_factor: float) -> None:
        """Submit an attempt, or leave its display name for a search if there is no answer.

        If it is cancelled, nothing is sent afterwards, and a job that was already created is
        stored. Raises OSError if it was not created.
        """
        client = self._client
        files = await self._files.request((command, step), (step.name, command.script))
        planned = plan_job(command, step, memory_factor, self._settings, self._program, files)
        await client.repeat(
            client.staging.put, planned.manifest_key, dump_manifest(planned.manifest)
        )
        time_left = RetryTime(client.errors)
        while True:
            refusal = await finish(asyncio.ensure_future(self._send(command, planned.job)))
            if refusal is None:
                return
            await time_left.wait_after(refusal)

    async def _upload_files(
        self, attempts: list[tuple[AttemptCommand, Step]]
    ) -> list[list[TaskFile]]:
        """Upload the files of attempts at one step; return them for each attempt."""
        client, (command, step) = self._client, attempts[0]
        files = await client.run(collect_files, command, step, self._root, self._settings)
        for file in (self._program, *files):
            await client.repeat(client.staging.upload_content, file.content, file.suffix)
        return [files for _ in attempts]

    async def _send(self, command: AttemptCommand, job: Mapping[str, Any]) -> GcpError | None:
        """Send a creation once; return the error if Vertex AI refuses it.

        The display name of the job is stored before the request, and its name after it.
        """
        job_id = VertexJobId(job["displayName"], name_prefix(command))
        try:
            replace(job_id, written=time.time()).write(command)
            name = await self._client.create(job)
        except GcpError as error:
            if not is_unconfirmed(error):
                forget_job_id(command)
                return error
            # The search begins when there is no answer, not when the request was sent.
            with suppress(OSError):
                replace(job_id, written=time.time()).write(command)
            return None
        except OSError:  # such as a full disk
            forget_job_id(command)
            raise
        # The job may run from here on: without its name, it is found by the other one.
        with suppress(OSError):
            replace(job_id, written=time.time(), name=name).write(command)
        return None
