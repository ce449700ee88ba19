"""Runner for AWS Batch: each attempt is a job with one container, or a child of an array job.

The supervisor uploads the files of an attempt, submits it when the dependencies are done, copies
the log and records how it ended, and submits the next attempt. Attempts at chunks of a step that
start together are one array job. If the supervisor is killed, the jobs continue, and the next
supervisor finds them by the ids, or the names, that it stored before the submission.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from hyperplane import config
from hyperplane.core.errors import Fault
from hyperplane.core.optional import is_installed
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.execution.resource_allocator import ResourceAllocator
from hyperplane.jobs.runners.aws_batch import task_program
from hyperplane.jobs.runners.aws_batch.batch_client import BatchClient, SubmissionUnknown
from hyperplane.jobs.runners.aws_batch.batch_job_id import BatchJobId, forget_job_id
from hyperplane.jobs.runners.aws_batch.batch_process import BatchProcess
from hyperplane.jobs.runners.aws_batch.cost import estimate_cost
from hyperplane.jobs.runners.aws_batch.requests import MAX_ARRAY, dump_manifest, plan_submission
from hyperplane.jobs.runners.aws_batch.staged_code import TaskFile, collect_files
from hyperplane.jobs.runners.aws_batch.step_checks import (
    find_option_faults,
    find_resource_faults,
    find_step_faults,
)
from hyperplane.jobs.runners.base import RemoteQueueMixin
from hyperplane.jobs.store.job_records import Job
from hyperplane.platforms.aws.errors import AwsError
from hyperplane.platforms.aws.object_staging import ObjectStaging, parse_staging
from hyperplane.platforms.aws.service_check import ServiceReport, check_service
from hyperplane.platforms.aws.session import EXTRA, AwsSession
from hyperplane.platforms.slurm.request_batcher import RequestBatcher
from hyperplane.spec.settings import AwsBatchSettings
from hyperplane.spec.settings.base import replace_settings

#: Program of the container, as an object of the staging folder.
PROGRAM_FILE = Path(str(task_program.__file__))
_PYTHON = "python"

#: An attempt, its step, and the factor of its memory.
_AttemptRequest = tuple[AttemptCommand, Step, float]


class AwsBatchRunner(RemoteQueueMixin):
    """Runs steps as jobs of AWS Batch; ``options`` are those of :meth:`resolve_options`."""

    name: ClassVar[str] = "aws-batch"
    at_once: ClassVar[int] = 500

    def __init__(self, environment: Mapping[str, str], options: Mapping[str, Any]) -> None:
        self.settings = AwsBatchSettings(**options)
        self._environment = environment
        self._client: BatchClient | None = None
        self._report: ServiceReport | None = None
        #: Folder of the pipeline on this machine.
        self._root = ""
        self._submissions: RequestBatcher[_AttemptRequest, OSError | None] = RequestBatcher(
            self._submit, uncancellable=True
        )

    @classmethod
    def resolve_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of the configuration, overridden by options of the submission."""
        settings = replace_settings(config.runners().aws_batch, options, "runner_options")
        return settings.model_dump(mode="json")

    def unavailable_reason(self) -> str:
        """Return what prevents jobs: options, credentials, queue, image and bucket; all at once."""
        if not is_installed("boto3"):
            return f"install boto3 with: pip install 'hyperplane[{EXTRA}]'"
        faults = find_option_faults(self.settings)
        if not faults:
            self._report = check_service(self._session(), self.settings)
            faults = self._report.faults
        return "\n".join(map(str, faults))

    def find_unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """Return a fault for each part of a pipeline that Batch cannot run."""
        environments = self._report.environments if self._report else ()
        return [
            *find_step_faults(pipeline, self.settings),
            *find_resource_faults(pipeline, self.settings, environments),
        ]

    def with_runtime_paths(self, job: Job) -> Job:
        """Return the job with paths relative to the working folder of a task, or in the image."""
        pipeline, settings = job.pipeline, self.settings
        self._root = pipeline.root
        steps = pipeline.steps
        if settings.root is None and settings.stage == "file":
            steps = tuple(
                step.model_copy(update={"path": Path(step.path).name, "working_dir": None})
                for step in steps
            )
            pipeline = pipeline.model_copy(update={"working_dir": None})
        moved = pipeline.model_copy(update={"root": settings.root or ".", "steps": steps})
        return replace(job, definition=moved.to_json(), folder=".", python=_PYTHON)

    def chunks_at_once(self, capacity: ResourceAllocator, step: Step, usual: int) -> int:
        """Return the maximum number of chunks in the queue, which may form one array job."""
        return min(super().chunks_at_once(capacity, step, usual), MAX_ARRAY)

    async def start(
        self, command: AttemptCommand, step: Step, memory_factor: float
    ) -> BatchProcess:
        """Upload the files of an attempt and submit it."""
        command.attempt_prefix.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for suffix in (".exit", ".pid"):
            command.file(suffix).unlink(missing_ok=True)
        forget_job_id(command)
        if step.kind == "notebook":
            command.file(".notebook").write_text(str(command.notebook))
        key = _array_key(command, step, memory_factor)
        error = await self._submissions.request((command, step, memory_factor), key)
        if error is not None:
            raise error
        return self.reattach(command)

    async def _submit(self, requests: list[_AttemptRequest]) -> list[OSError | None]:
        """Submit attempts with the same key as one job; return the error of each, if any."""
        commands = [command for command, _, _ in requests]
        _, step, memory_factor = requests[0]
        try:
            await self._submit_together(commands, step, memory_factor)
        except SubmissionUnknown:
            pass  # the process of each attempt searches for its job
        except OSError as error:
            for command in commands:
                forget_job_id(command)
            return [error for _ in requests]
        return [None for _ in requests]

    async def _submit_together(
        self, commands: list[AttemptCommand], step: Step, memory_factor: float
    ) -> None:
        client, settings = self._get_client(), self.settings
        files = await client.run(collect_files, commands[0], step.kind, self._root, settings)
        program = TaskFile(PROGRAM_FILE.name, PROGRAM_FILE.read_bytes())
        for file in (program, *files):
            await client.repeat(client.staging.upload_content, file.content, file.suffix)
        planned = plan_submission(commands, step, memory_factor, settings, program, files)
        await client.repeat(
            client.staging.put, planned.manifest_key, dump_manifest(planned.manifest)
        )
        arn = await client.repeat(client.api.register_definition, planned.definition)
        count, now = len(commands), time.time()
        name, queue = planned.job["jobName"], planned.job["jobQueue"]
        ids = [
            BatchJobId(name, queue, index if count > 1 else None, written=now)
            for index in range(count)
        ]
        for command, job_id in zip(commands, ids, strict=True):
            job_id.write(command)
        submitted = await client.submit({**planned.job, "jobDefinition": arn})
        for command, job_id in zip(commands, ids, strict=True):
            job_id.with_id(submitted).write(command)

    def reattach(self, command: AttemptCommand) -> BatchProcess:
        """Return the process of a job that this or an earlier supervisor submitted."""
        return BatchProcess(command, self._get_client(), self.settings.log_group)

    def describe_cost(self, job: Job) -> list[str]:
        """Return the cost of each step for an hour, before anything is submitted."""
        region = self.settings.region
        if region is None and is_installed("boto3"):
            with suppress(AwsError):
                region = self._session().region()
        return [estimate_cost(step, self.settings, region) for step in job.pipeline.steps]

    async def close(self) -> None:
        """End the threads of the requests."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _session(self) -> AwsSession:
        return AwsSession(self.settings.region, self.settings.profile, self._environment)

    def _get_client(self) -> BatchClient:
        if self._client is None:
            session = self._session()
            staging = ObjectStaging(session, parse_staging(str(self.settings.staging)))
            self._client = BatchClient(session, staging)
        return self._client


def _array_key(command: AttemptCommand, step: Step, memory_factor: float) -> Hashable:
    """Return a key that is equal for attempts of one array job."""
    folder = command.attempt_prefix.parent
    if not folder.name.startswith("chunk-"):
        return command.attempt_prefix
    return (step.name, memory_factor, folder.parent, command.attempt_prefix.name)
