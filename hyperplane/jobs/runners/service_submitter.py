"""Creation of the jobs of attempts: upload files, store the name of a job, and create it once.

A request is sent again only after a refusal. If it is unknown whether the service created the job,
the process of the attempt searches it by its name, for as long as it may appear.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Generic, TypeVar

from hyperplane.core.errors.platforms import PlatformError
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.container_program import read_task_program
from hyperplane.jobs.runners.retry_time import RetryTime
from hyperplane.jobs.runners.service_client import JobIdT, ServiceClient
from hyperplane.jobs.runners.staged_code import StagedCodeSettings, TaskFile, collect_files
from hyperplane.jobs.runners.task_manifest import dump_manifest
from hyperplane.platforms.slurm.request_batcher import RequestBatcher

Result = TypeVar("Result")
SettingsT = TypeVar("SettingsT", bound=StagedCodeSettings)


class ServiceSubmitter(Generic[JobIdT, SettingsT]):
    """Base of submitters, which plan the requests of a service.

    Parameters
    ----------
    client : ServiceClient
        Client of the requests.
    settings : StagedCodeSettings
        Settings of the runner.
    root : str
        Folder of the pipeline on this machine.
    """

    def __init__(self, client: ServiceClient[JobIdT], settings: SettingsT, root: str) -> None:
        self._client, self._settings, self._root = client, settings, root
        self._program = read_task_program()
        #: Attempts at chunks of a step that start together have the same files.
        self._uploads: RequestBatcher[tuple[AttemptCommand, Step], list[TaskFile]] = RequestBatcher(
            self._upload_files_once
        )

    async def _upload_shared_files(self, command: AttemptCommand, step: Step) -> list[TaskFile]:
        """Return the files of an attempt, uploaded once for those at its step that start now."""
        return await self._uploads.request((command, step), (step.name, command.script))

    async def _upload_files_once(
        self, attempts: list[tuple[AttemptCommand, Step]]
    ) -> list[list[TaskFile]]:
        files = await self._upload_files(*attempts[0])
        return [files for _ in attempts]

    async def _upload_files(self, command: AttemptCommand, step: Step) -> list[TaskFile]:
        """Upload the program and the files of an attempt; return the files."""
        files = await self._client.run(collect_files, command, step, self._root, self._settings)
        for file in (self._program, *files):
            await self._client.upload_content(file.content, file.suffix)
        return files

    async def _upload_manifest(self, key: str, manifest: Mapping[str, Any]) -> None:
        await self._client.upload(key, dump_manifest(manifest))

    async def _create(
        self, commands: Sequence[AttemptCommand], ids: Sequence[JobIdT], request: Mapping[str, Any]
    ) -> None:
        """Create the job of some attempts, or leave its name for a search without an answer.

        If this is cancelled, nothing is sent afterwards, and a job that was already created is
        stored. Raises OSError if it was not created.
        """
        time_left = RetryTime(self._client.errors)
        while True:
            refusal = await _finish(asyncio.ensure_future(self._send(commands, ids, request)))
            if refusal is None:
                return
            await time_left.wait_after(refusal)

    async def _send(
        self, commands: Sequence[AttemptCommand], ids: Sequence[JobIdT], request: Mapping[str, Any]
    ) -> PlatformError | None:
        """Send a creation once; return the error if the service refuses it.

        The names are stored before the request, and the id of the job after it.
        """
        created = ""
        try:
            _write_ids(commands, ids)
            created = await self._client.create(request)
        except PlatformError as error:
            if not self._client.errors.is_unconfirmed(error):
                _forget_ids(commands, ids)
                return error
            # The search begins when there is no answer, not when the request was sent.
        except OSError:  # such as a full disk
            _forget_ids(commands, ids)
            raise
        # The job may run from here on: without its id, it is found by the name.
        with suppress(OSError):
            _write_ids(commands, [job_id.with_id(created) for job_id in ids])
        return None


def _write_ids(commands: Sequence[AttemptCommand], ids: Sequence[JobIdT]) -> None:
    now = time.time()
    for command, job_id in zip(commands, ids, strict=True):
        replace(job_id, written=now).write(command)


def _forget_ids(commands: Sequence[AttemptCommand], ids: Sequence[JobIdT]) -> None:
    for command, job_id in zip(commands, ids, strict=True):
        job_id.forget(command)


async def _finish(work: asyncio.Future[Result]) -> Result:
    """Wait for the end of work, also if this coroutine is cancelled in the meantime."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait({work})
        raise
