"""Races and logs that the runners share whose drivers store their output in the bucket."""

from __future__ import annotations

import asyncio
import errno
import gzip
from abc import abstractmethod
from datetime import UTC, datetime
from typing import Any, ClassVar, cast

import pytest
from aws_race_contract import AwsRaceContract
from service_race_contract import FIRST, RUNNING, STEP, SUCCEEDED, FakeService, Runner, log_of

from hyperplane.core.errors.platforms import PlatformError
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners import stored_output
from hyperplane.jobs.runners.driver_client import DriverClient
from hyperplane.platforms.aws.errors import AwsConnectionError, AwsRequestError
from hyperplane.platforms.object_staging import parse_staging

STARTED = datetime(1970, 1, 1, 0, 16, 40, tzinfo=UTC)
FAILED = "failed"


class FakeDriverService(FakeService):
    """The requests of the interface of a service, and of ``S3Staging``.

    ``objects`` are those of the bucket.
    """

    no_answer: ClassVar[PlatformError] = AwsConnectionError("no answer")
    throttled: ClassVar[PlatformError] = AwsRequestError("too many", "ThrottlingException", 400)
    denied: ClassVar[PlatformError] = AwsRequestError(
        "you may not end jobs", "AccessDeniedException", 400
    )
    broken: ClassVar[PlatformError] = AwsRequestError("server", "InternalServerException", 500)
    unknown: ClassVar[PlatformError] = AwsRequestError("none", "ValidationException", 400)

    client_type: ClassVar[type[DriverClient[Any]]]

    def __init__(self, **errors: list[PlatformError | None]) -> None:
        super().__init__(**errors)
        self.folder = parse_staging("s3://flights/jobs")
        self.objects: dict[str, bytes] = {}

    @abstractmethod
    def api(self) -> Any:
        """Return the interface of the service, which this answers."""

    def client(self) -> DriverClient[Any]:
        client = self.client_type(cast("Any", None), cast("Any", self))
        client.api = self.api()
        client.read_object = lambda _, key: self.objects.get(key)  # type: ignore[method-assign]
        return client

    # An attribute of the staging folder has this name, too.
    def read(self, ids: Any) -> Any:
        if not isinstance(ids, str):
            return super().read(ids)
        if ids not in self.objects:
            raise AwsRequestError("no such object", "NoSuchKey", 404)
        return self.objects[ids]


class DriverRaceContract(AwsRaceContract):
    """Output, exit codes and logs of attempts; ``first`` is the id of the only run."""

    fake: ClassVar[type[FakeDriverService]]
    first: ClassVar[str] = FIRST
    #: Key of the log that the service keeps of the first run.
    service_log: ClassVar[str]

    @pytest.fixture(autouse=True)
    def no_log(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(stored_output, "LOG_SECONDS", 0.2)
        monkeypatch.setattr(stored_output, "LOG_PAUSE", 0.02)

    def failed(self, fake: FakeDriverService, command: AttemptCommand) -> int | None:
        """Return the exit code of an attempt whose run has failed."""
        self.unsent.with_id(self.first).write(command)
        fake.set_state(FAILED, self.first)

        async def run(runner: Runner) -> int | None:
            return await runner.reattach(command).wait()

        return cast("int | None", self.work(fake, run))

    def test_a_failed_program_has_its_code_and_its_output(self, command: AttemptCommand) -> None:
        fake = self.fake()
        fake.objects = {
            "jobs/attempts/one.exit": b"7",
            "jobs/attempts/one.log/000000": b"first\n",
            "jobs/attempts/one.log/000001": b"second\n",
            self.service_log: gzip.compress(b"noise of spark-submit\n"),
        }
        assert self.failed(fake, command) == 7
        assert log_of(command) == "first\nsecond\n"

    def test_a_step_whose_program_never_began_has_the_log_of_the_service(
        self, command: AttemptCommand
    ) -> None:
        fake = self.fake()
        lines = "".join(f"line {number}\n" for number in range(200))
        fake.objects = {self.service_log: gzip.compress(f"{lines}no such python\n".encode())}
        assert self.failed(fake, command) == 1
        log = log_of(command)
        assert "no such python" in log
        assert "line 199" in log
        assert "line 0\n" not in log

    def test_a_log_that_never_comes_does_not_hold_a_failure(self, command: AttemptCommand) -> None:
        assert self.failed(self.fake(), command) == 1
        assert f"the log s3://flights/{self.service_log} is not there yet" in log_of(command)

    def test_a_damaged_log_is_reported(self, command: AttemptCommand) -> None:
        fake = self.fake()
        fake.objects = {self.service_log: b"<html>"}
        assert self.failed(fake, command) == 1
        assert f"{self.service_log} cannot be read" in log_of(command)

    def test_output_is_copied_while_a_step_runs(self, command: AttemptCommand) -> None:
        fake = self.fake()
        self.unsent.with_id(self.first).write(command)
        fake.set_state(RUNNING, self.first)

        async def run(runner: Runner) -> None:
            waiting = asyncio.ensure_future(runner.reattach(command).wait())
            for number in range(3):
                fake.objects[f"jobs/attempts/one.log/{number:06}"] = b"part %d\n" % number
                while f"part {number}" not in log_of(command):
                    await asyncio.sleep(0.01)
            fake.set_state(SUCCEEDED, self.first)
            assert await waiting == 0

        self.work(fake, run)
        assert log_of(command) == "part 0\npart 1\npart 2\n"

    def test_a_step_without_a_machine_is_not_sent(self, command: AttemptCommand) -> None:
        fake = self.fake()
        with pytest.raises(OSError, match="is large enough") as caught:
            self.work(fake, lambda runner: runner.start(command, STEP, 1000.0))
        assert caught.value.errno == errno.EPERM
        assert fake.created == 0
