"""Attempts on AWS Glue with lost answers, full disks and cancellations, without a service."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, cast

import pytest
from aws_race_contract import AwsRaceContract
from service_race_contract import (
    FIRST,
    STEP,
    SUCCEEDED,
    FakeService,
    Runner,
)

from hyperplane.core.errors.platforms import PlatformError
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.glue.glue_client import GlueClient
from hyperplane.jobs.runners.glue.glue_job_id import GlueJobId
from hyperplane.jobs.runners.glue.glue_process import GlueProcess
from hyperplane.jobs.runners.glue.runner import GlueRunner
from hyperplane.platforms.aws.errors import AwsConnectionError, AwsRequestError
from hyperplane.platforms.object_staging import parse_staging

STARTED = AwsRequestError("one run at a time", "ConcurrentRunsExceededException", 400)


class FakeGlue(FakeService):
    """The requests of ``GlueApi`` and ``S3Staging``.

    ``job_errors`` are those of the next creations of jobs; ``jobs_left`` are the names of jobs.
    """

    no_answer: ClassVar[PlatformError] = AwsConnectionError("no answer")
    throttled: ClassVar[PlatformError] = AwsRequestError("too many", "ThrottlingException", 400)
    denied: ClassVar[PlatformError] = AwsRequestError(
        "you may not end jobs", "AccessDeniedException", 400
    )
    broken: ClassVar[PlatformError] = AwsRequestError("server", "InternalServiceException", 500)
    unknown: ClassVar[PlatformError] = AwsRequestError("none", "EntityNotFoundException", 400)

    def __init__(self, **errors: list[PlatformError | None]) -> None:
        super().__init__(**errors)
        self.folder = parse_staging("s3://flights/jobs")
        self.jobs_left: list[str] = []

    def client(self) -> GlueClient:
        client = GlueClient(cast("Any", None), cast("Any", self))
        client.api = cast("Any", FakeGlueApi(self))
        return client

    def describe(self, job_id: str, state: str) -> dict[str, Any]:
        return {"Id": job_id} | {
            "waiting": {"JobRunState": "WAITING"},
            "running": {"JobRunState": "RUNNING"},
            "succeeded": {"JobRunState": "SUCCEEDED"},
            "ended": {"JobRunState": "STOPPED"},
        }[state]

    # An attribute of the staging folder has this name, too.
    def read(self, ids: Any) -> Any:
        if isinstance(ids, str):
            raise AwsRequestError("no such object", "NoSuchKey", 404)
        return super().read(ids)


class FakeGlueApi:
    """The requests of ``GlueApi``, answered by a :class:`FakeGlue`."""

    def __init__(self, fake: FakeGlue) -> None:
        self._fake = fake

    def create_job(self, request: Any) -> None:
        error = self._fake.next_error("jobs")
        if error is not None:
            raise error
        if request["Name"] not in self._fake.jobs_left:
            self._fake.jobs_left.append(request["Name"])

    def delete_job(self, name: str) -> None:
        if name in self._fake.jobs_left:
            self._fake.jobs_left.remove(name)

    def start_run(self, name: str) -> str:
        return self._fake.create_job(name)

    def find_runs(self, name: str) -> list[str]:
        return self._fake.find(name)

    def read_run(self, run: str) -> Any:
        return self._fake.read([run]).get(run)

    def stop_run(self, run: str) -> None:
        self._fake.end(run)

    def account(self) -> str:
        return "111111111111"


class TestGlueRaces(AwsRaceContract):
    title: ClassVar[str] = "AWS Glue"
    runner_type: ClassVar[type[Any]] = GlueRunner
    options: ClassVar[dict[str, Any]] = {
        "role": "arn:aws:iam::111111111111:role/glue",
        "staging": "s3://flights/jobs",
    }
    process_type = GlueProcess
    job_id_type = GlueJobId
    unsent = GlueJobId("one")
    fake = FakeGlue

    def test_a_job_is_deleted_after_the_end_of_its_run(self, command: AttemptCommand) -> None:
        fake = FakeGlue()

        async def run(runner: Runner) -> None:
            process = await runner.start(command, STEP, 1.0)
            assert len(fake.jobs_left) == 1
            fake.set_state(SUCCEEDED)
            assert await process.wait() == 0

        self.work(fake, run)
        assert fake.jobs_left == []
        assert GlueJobId.read(command) is None

    def test_the_next_supervisor_deletes_a_job_that_was_not(self, command: AttemptCommand) -> None:
        fake = FakeGlue()
        self.store_id(command)
        fake.jobs_left = ["one"]
        command.file(".exit").write_text("0")  # as if the supervisor had then been killed

        async def run(runner: Runner) -> None:
            assert await runner.reattach(command).wait() == 0

        self.work(fake, run)
        assert fake.jobs_left == []

    @pytest.mark.parametrize("error", [FakeGlue.no_answer, FakeGlue.broken, FakeGlue.throttled])
    def test_the_creation_of_a_job_is_repeated_before_it_is_started(
        self, command: AttemptCommand, error: PlatformError
    ) -> None:
        fake = FakeGlue(jobs=[error, error])

        async def run(runner: Runner) -> None:
            process = await runner.start(command, STEP, 1.0)
            fake.set_state(SUCCEEDED)
            assert await process.wait() == 0

        self.work(fake, run)
        assert fake.created == 1

    def test_a_job_that_was_not_started_is_deleted(self, command: AttemptCommand) -> None:
        fake = FakeGlue(creations=[FakeGlue.denied])
        with pytest.raises(OSError, match="you may not"):
            self.work(fake, lambda runner: runner.start(command, STEP, 1.0))
        assert fake.jobs_left == []

    def test_a_start_that_is_cancelled_between_refusals_leaves_no_job(
        self, command: AttemptCommand
    ) -> None:
        fake = FakeGlue(creations=[FakeGlue.throttled] * 100)

        async def run(runner: Runner) -> None:
            start = asyncio.ensure_future(runner.start(command, STEP, 1.0))
            while not fake.created:
                await asyncio.sleep(0.01)
            start.cancel()
            with pytest.raises(asyncio.CancelledError):
                await start

        self.work(fake, run)
        assert fake.jobs_left == []

    def test_a_second_start_that_is_refused_finds_the_first_run(
        self, command: AttemptCommand
    ) -> None:
        # The first answer says that there were too many requests, but the run was started.
        fake = FakeGlue(creations=[FakeGlue.throttled, STARTED])

        async def run(runner: Runner) -> None:
            process = await runner.start(command, STEP, 1.0)
            fake.accepted[FIRST] = fake.jobs_left[0]
            fake.set_state(SUCCEEDED)
            assert await process.wait() == 0

        self.work(fake, run)
        assert fake.created == 2
