"""Attempts on AWS Batch with lost answers, full disks and cancellations, without a service."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any, ClassVar, cast

import pytest
from aws_race_contract import AwsRaceContract
from service_race_contract import (
    FIRST,
    STEP,
    SUCCEEDED,
    WAITING,
    FakeService,
    Runner,
    wait_for_line,
)

from hyperplane.core.errors.platforms import PlatformError
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.aws_batch import batch_process
from hyperplane.jobs.runners.aws_batch.batch_client import BatchClient
from hyperplane.jobs.runners.aws_batch.batch_job_id import BatchJobId
from hyperplane.jobs.runners.aws_batch.batch_process import BatchProcess
from hyperplane.jobs.runners.aws_batch.runner import AwsBatchRunner
from hyperplane.platforms.aws.errors import AwsConnectionError, AwsRequestError


class FakeBatch(FakeService):
    """The requests of ``BatchApi`` and ``S3Staging``."""

    no_answer: ClassVar[PlatformError] = AwsConnectionError("no answer")
    throttled: ClassVar[PlatformError] = AwsRequestError(
        "too many", "TooManyRequestsException", 429
    )
    denied: ClassVar[PlatformError] = AwsRequestError(
        "you may not end jobs", "AccessDeniedException", 403
    )
    broken: ClassVar[PlatformError] = AwsRequestError("server error", "ServerException", 500)
    unknown: ClassVar[PlatformError] = AwsRequestError("no such job", "ClientException", 404)

    def client(self) -> BatchClient:
        client = BatchClient(cast("Any", None), cast("Any", self))
        client.api = cast("Any", self)
        return client

    def describe(self, job_id: str, state: str) -> dict[str, Any]:
        return {"jobId": job_id} | {
            "waiting": {"status": "RUNNABLE"},
            "running": {"status": "RUNNING", "startedAt": 1_000_000},
            "succeeded": {"status": "SUCCEEDED"},
            "ended": {"status": "FAILED", "statusReason": "ended"},
        }[state]

    def register_definition(self, request: Any) -> str:
        return str(request["jobDefinitionName"])

    def account(self) -> str:
        return "111111111111"

    def submit(self, request: Any) -> str:
        return self.create_job(request["jobName"])

    def find_jobs(self, queue: str, name: str) -> list[str]:
        assert queue == "q"
        return self.find(name)

    def describe_jobs(self, ids: Any) -> dict[str, dict[str, Any]]:
        return self.read(ids)

    def terminate(self, job_id: str, reason: str) -> None:
        del reason
        self.end(job_id)


class TestAwsBatchRaces(AwsRaceContract):
    title: ClassVar[str] = "AWS Batch"
    runner_type: ClassVar[type[Any]] = AwsBatchRunner
    options: ClassVar[dict[str, Any]] = {"queue": "q", "image": "i", "staging": "s3://flights/jobs"}
    process_type = BatchProcess
    job_id_type = BatchJobId
    unsent = BatchJobId("one", "q")
    fake = FakeBatch

    def test_the_account_of_a_submission_is_stored(self, command: AttemptCommand) -> None:
        self.work(FakeBatch(), lambda runner: runner.start(command, STEP, 1.0))
        stored = BatchJobId.read(command)
        assert stored is not None
        assert (stored.id, stored.account) == (FIRST, "111111111111")

    def test_a_missing_child_is_not_lost_while_its_array_runs(
        self, command: AttemptCommand
    ) -> None:
        fake = FakeBatch()
        fake.jobs[FIRST] = {"jobId": FIRST, "status": "PENDING"}
        child = replace(self.unsent, index=0, id=FIRST, written=time.time())
        child.write(command)

        async def appear(runner: Runner) -> int | None:
            waiting = asyncio.ensure_future(runner.reattach(command).wait())
            await wait_for_line(command, f"array {FIRST} is PENDING, without this chunk")
            await asyncio.sleep(0.2)
            assert not waiting.done()
            fake.set_state(SUCCEEDED, child.task_id())
            return await waiting

        assert self.work(fake, appear) == 0
        assert fake.ended == []

    def test_a_job_that_can_never_start_fails_after_its_end_is_confirmed(
        self, command: AttemptCommand, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(batch_process, "NEVER_STARTS_SECONDS", 0.05)
        fake = FakeBatch(endings=[FakeBatch.throttled, FakeBatch.denied, FakeBatch.no_answer])
        waiting = fake.describe(FIRST, WAITING)
        fake.jobs[FIRST] = {**waiting, "statusReason": "MISCONFIGURATION:X - too large"}
        code = self.work(fake, self.watched(command))
        assert code == batch_process.CONFIGURATION_ERROR
        assert fake.errors["endings"] == []
        assert fake.ended == [FIRST]
