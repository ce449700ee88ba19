"""Lost answers, full disks and cancellations, without a service, for the runners of services.

The tests of each runner subclass them, and answer requests with a double of its interface.
"""

from __future__ import annotations

import asyncio
import errno
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from job_cases import bash

from hyperplane.core.errors.platforms import PlatformError
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners import retry_time, service_job_id, service_process
from hyperplane.jobs.runners.service_client import ServiceClient
from hyperplane.jobs.runners.service_job_id import ServiceJobId
from hyperplane.jobs.runners.service_process import ServiceProcess
from hyperplane.jobs.runners.service_runner import ServiceRunner

WAITING, RUNNING, SUCCEEDED, ENDED = "waiting", "running", "succeeded", "ended"
STEP = bash("one", "true")
#: Id of the first job that a double accepts.
FIRST = "jobs/1"

Runner = ServiceRunner[Any, Any]


class FakeService(ABC):
    """Jobs of a service, with answers that a test sets.

    Parameters
    ----------
    creations, endings, descriptions : list
        Errors of the next requests, in turn; None for a request that succeeds.
    """

    #: Errors of the service: no answer, too many requests, a missing permission, a server error,
    #: and an unknown job.
    no_answer: ClassVar[PlatformError]
    throttled: ClassVar[PlatformError]
    denied: ClassVar[PlatformError]
    broken: ClassVar[PlatformError]
    unknown: ClassVar[PlatformError]

    def __init__(self, **errors: list[PlatformError | None]) -> None:
        self.errors = errors
        #: Names of accepted jobs by id, and whether a list shows them.
        self.accepted: dict[str, str] = {}
        self.is_listed = True
        self.accepts_without_answer = True
        self.jobs: dict[str, dict[str, Any]] = {}
        self.created = 0
        self.ended: list[str] = []
        self.on_upload: Callable[[], None] = lambda: None
        self.on_create: Callable[[], None] = lambda: None

    @abstractmethod
    def client(self) -> ServiceClient[Any]:
        """Return a client whose requests this object answers."""

    @abstractmethod
    def describe(self, job_id: str, state: str) -> dict[str, Any]:
        """Return a job in the form of the service; it runs since 1000 s after 1970."""

    def set_state(self, state: str, job_id: str = FIRST) -> None:
        """Set the state of a job."""
        self.jobs[job_id] = self.describe(job_id, state)

    def upload_content(self, content: bytes, suffix: str) -> str:
        del content
        self.on_upload()
        return suffix

    def put(self, key: str, content: bytes) -> None:
        del key, content

    def create_job(self, name: str) -> str:
        self.created += 1
        self.on_create()
        error = self.next_error("creations")
        job_id = f"jobs/{self.created}"
        if error is None or (error is self.no_answer and self.accepts_without_answer):
            self.accepted[job_id] = name
            self.set_state(WAITING, job_id)
        if error is not None:
            raise error
        return job_id

    def find(self, name: str) -> list[str]:
        return [id_ for id_, each in self.accepted.items() if self.is_listed and each == name]

    def read(self, ids: Any) -> dict[str, dict[str, Any]]:
        error = self.next_error("descriptions")
        if error is not None:
            raise error
        return {each: self.jobs[each] for each in ids if each in self.jobs}

    def end(self, job_id: str) -> None:
        error = self.next_error("endings")
        if error is not None:
            raise error
        self.ended.append(job_id)
        if job_id in self.jobs:
            self.set_state(ENDED, job_id)

    def next_error(self, kind: str) -> PlatformError | None:
        errors = self.errors.get(kind, [])
        return errors.pop(0) if errors else None


def log_of(command: AttemptCommand) -> str:
    """Return the log of an attempt."""
    return command.file(".log").read_text()


async def wait_for_line(command: AttemptCommand, text: str) -> None:
    """Wait until the log of an attempt has a text; the limit is that of the test."""
    while text not in log_of(command):
        await asyncio.sleep(0.01)


class ServiceRaceContract:
    """What happens between the requests for one attempt."""

    title: ClassVar[str]
    runner_type: ClassVar[type[Any]]
    options: ClassVar[dict[str, Any]]
    process_type: ClassVar[type[ServiceProcess[Any, Any]]]
    job_id_type: ClassVar[type[ServiceJobId]]
    #: The id of an attempt without the id of a job.
    unsent: ClassVar[ServiceJobId]
    fake: ClassVar[type[FakeService]]

    @pytest.fixture(autouse=True)
    def fast(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(self.process_type, "poll_seconds", 0.01)
        monkeypatch.setattr(service_process, "END_SECONDS", 0.01)
        monkeypatch.setattr(service_process, "VANISHED_SECONDS", 0.1)
        monkeypatch.setattr(retry_time, "MAX_PAUSE_SECONDS", 0.05)
        monkeypatch.setattr(service_job_id, "UNCONFIRMED_SECONDS", 0.5)

    @pytest.fixture
    def command(self, tmp_path: Path) -> AttemptCommand:
        folder = tmp_path / str(uuid.uuid4()) / "steps" / "000-one"
        folder.mkdir(parents=True)
        command = AttemptCommand(("true",), {}, ".", folder / "attempt-1")
        command.file(".log").touch()
        return command

    @classmethod
    def work(cls, fake: FakeService, function: Callable[[Runner], Awaitable[Any]]) -> Any:
        """Call a function with a runner whose requests a double answers."""

        async def main() -> Any:
            runner = cls.runner_type({}, cls.options)
            runner._client = fake.client()
            try:
                return await asyncio.wait_for(function(runner), 20)
            finally:
                await runner.close()

        return asyncio.run(main())

    @classmethod
    def watched(cls, command: AttemptCommand) -> Callable[[Runner], Awaitable[int | None]]:
        """Store the id of a job, and return the coroutine that waits for its end."""
        cls.store_id(command)

        async def run(runner: Runner) -> int | None:
            return await runner.reattach(command).wait()

        return run

    @classmethod
    def store_id(cls, command: AttemptCommand) -> None:
        """Store the id of the first job, as after the answer to its creation."""
        cls.unsent.with_id(FIRST).write(command)

    def test_a_job_that_is_listed_late_is_found_and_never_created_twice(
        self, command: AttemptCommand, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(service_job_id, "UNCONFIRMED_SECONDS", 60.0)
        fake = self.fake(creations=[self.fake.no_answer])
        fake.is_listed = False

        async def run(runner: Runner) -> None:
            process = await runner.start(command, STEP, 1.0)
            waiting = asyncio.ensure_future(process.wait())
            await wait_for_line(command, "no answer says whether job")
            fake.is_listed = True
            await asyncio.sleep(0.1)
            fake.set_state(SUCCEEDED)
            assert await waiting == 0

        self.work(fake, run)
        assert fake.created == 1
        assert fake.ended == []

    def test_a_creation_that_was_not_accepted_is_a_lost_attempt(
        self, command: AttemptCommand
    ) -> None:
        fake = self.fake(creations=[self.fake.no_answer])
        fake.accepts_without_answer = False

        async def run(runner: Runner) -> int | None:
            return await (await runner.start(command, STEP, 1.0)).wait()

        started = time.monotonic()
        assert self.work(fake, run) is None
        assert time.monotonic() - started > 0.5
        assert "does not list it: the attempt is lost" in log_of(command)
        assert fake.created == 1

    def test_the_time_of_a_search_begins_after_the_last_request(
        self, command: AttemptCommand
    ) -> None:
        # As if the creation had been refused for longer than a job may take to appear.
        fake = self.fake(creations=[self.fake.throttled, self.fake.no_answer])
        sent: list[float] = []
        fake.on_create = lambda: sent.append(time.time())

        async def run(runner: Runner) -> None:
            await runner.start(command, STEP, 1.0)
            stored = self.job_id_type.read(command)
            assert stored is not None
            assert not stored.id
            assert stored.written >= sent[1]

        self.work(fake, run)
        assert fake.created == 2

    def test_a_server_error_is_followed_by_a_search_not_by_a_second_job(
        self, command: AttemptCommand
    ) -> None:
        fake = self.fake(creations=[self.fake.broken])

        async def run(runner: Runner) -> int | None:
            return await (await runner.start(command, STEP, 1.0)).wait()

        assert self.work(fake, run) is None
        assert fake.created == 1

    def test_a_full_disk_after_the_answer_is_no_reason_to_create_another_job(
        self, command: AttemptCommand, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fake = self.fake()
        write = ServiceJobId.write

        def full(job_id: ServiceJobId, target: AttemptCommand) -> None:
            if job_id.id:
                raise OSError(errno.ENOSPC, "No space left on device")
            write(job_id, target)

        monkeypatch.setattr(ServiceJobId, "write", full)

        async def run(runner: Runner) -> int | None:
            process = await runner.start(command, STEP, 1.0)
            fake.set_state(SUCCEEDED)
            return await process.wait()

        assert self.work(fake, run) == 0
        assert fake.created == 1

    def test_a_full_disk_before_the_request_sends_nothing(
        self, command: AttemptCommand, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(job_id: ServiceJobId, target: AttemptCommand) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(ServiceJobId, "write", full)
        fake = self.fake()
        with pytest.raises(OSError, match="No space left"):
            self.work(fake, lambda runner: runner.start(command, STEP, 1.0))
        assert fake.created == 0

    def test_nothing_is_sent_after_a_cancellation_during_the_upload(
        self, command: AttemptCommand
    ) -> None:
        fake = self.fake()
        uploading, release, uploaded = (threading.Event() for _ in range(3))

        def upload() -> None:
            uploading.set()
            release.wait(60)
            uploaded.set()

        fake.on_upload = upload

        async def run(runner: Runner) -> None:
            start = asyncio.ensure_future(runner.start(command, STEP, 1.0))
            await asyncio.to_thread(uploading.wait)
            start.cancel()
            with pytest.raises(asyncio.CancelledError):
                await start
            assert not uploaded.is_set(), "it does not wait for the upload"
            assert await runner.reattach(command).end(1.0) is None
            release.set()
            await asyncio.sleep(0.2)

        try:
            self.work(fake, run)
        finally:
            release.set()
        assert fake.created == 0

    def test_a_job_that_is_created_during_a_cancellation_is_stored_and_ended(
        self, command: AttemptCommand
    ) -> None:
        fake = self.fake()
        sending, release = threading.Event(), threading.Event()

        def send() -> None:
            sending.set()
            release.wait(10)

        fake.on_create = send

        async def run(runner: Runner) -> None:
            start = asyncio.ensure_future(runner.start(command, STEP, 1.0))
            await asyncio.to_thread(sending.wait)
            start.cancel()
            await asyncio.sleep(0.1)
            assert not start.done()
            release.set()
            with pytest.raises(asyncio.CancelledError):
                await start
            await runner.reattach(command).end(1.0)

        self.work(fake, run)
        assert fake.ended == [FIRST]

    def test_a_cancellation_between_refusals_leaves_nothing_to_search(
        self, command: AttemptCommand
    ) -> None:
        fake = self.fake(creations=[self.fake.throttled] * 100)

        async def run(runner: Runner) -> None:
            start = asyncio.ensure_future(runner.start(command, STEP, 1.0))
            while not fake.created:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
            start.cancel()
            with pytest.raises(asyncio.CancelledError):
                await start
            assert self.job_id_type.read(command) is None

        self.work(fake, run)
        assert fake.accepted == {}

    def test_a_vanished_job_is_ended_before_it_is_lost(self, command: AttemptCommand) -> None:
        fake = self.fake(endings=[self.fake.throttled, self.fake.denied])
        assert self.work(fake, self.watched(command)) is None
        assert fake.ended == [FIRST]
        assert str(self.fake.denied) in log_of(command)
        assert f"{self.title} has no job {FIRST}: the attempt is lost" in log_of(command)

    def test_a_job_that_the_service_does_not_know_at_all_is_lost(
        self, command: AttemptCommand
    ) -> None:
        fake = self.fake(endings=[self.fake.unknown])
        assert self.work(fake, self.watched(command)) is None
        assert "the attempt is lost" in log_of(command)

    def test_errors_do_not_count_as_the_time_of_a_missing_job(
        self, command: AttemptCommand, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Only errors take time.
        clock = [1000.0]
        monkeypatch.setattr(service_process, "time", SimpleNamespace(monotonic=lambda: clock[0]))
        fake = self.fake(descriptions=[None, *[self.fake.no_answer] * 8, None])
        next_error = fake.next_error

        def take_time(kind: str) -> PlatformError | None:
            error = next_error(kind)
            clock[0] += service_process.VANISHED_SECONDS if error is not None else 0.0
            return error

        monkeypatch.setattr(fake, "next_error", take_time)
        run = self.watched(command)

        async def appear(runner: Runner) -> int | None:
            waiting = asyncio.ensure_future(run(runner))
            while len(fake.errors["descriptions"]):
                await asyncio.sleep(0.01)
            fake.set_state(SUCCEEDED)
            return await waiting

        assert self.work(fake, appear) == 0
        assert fake.ended == []

    def cancelled(self, fake: FakeService, command: AttemptCommand) -> int | None:
        fake.set_state(RUNNING)
        self.store_id(command)

        async def run(runner: Runner) -> int | None:
            return await runner.reattach(command).end(1.0)

        return cast("int | None", self.work(fake, run))

    def test_a_refused_cancellation_says_why(
        self, command: AttemptCommand, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(self.process_type, "confirm_seconds", 0.3)
        fake = self.fake(endings=[self.fake.denied] * 1000)
        assert self.cancelled(fake, command) is None
        text = f"does not confirm that the step has ended: {self.fake.denied}; check job one"
        assert text in log_of(command)

    def test_a_cancellation_is_repeated_until_the_service_answers(
        self, command: AttemptCommand, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(self.process_type, "confirm_seconds", 10.0)
        fake = self.fake(endings=[self.fake.no_answer] * 10)
        assert self.cancelled(fake, command) == 1
        assert fake.ended == [FIRST]

    def test_errors_while_a_job_runs_are_in_its_log_once(
        self, command: AttemptCommand, caplog: pytest.LogCaptureFixture
    ) -> None:
        denied = self.fake.denied
        fake = self.fake(descriptions=[None, denied, denied, denied])
        fake.set_state(RUNNING)
        run = self.watched(command)

        async def end(runner: Runner) -> int | None:
            waiting = asyncio.ensure_future(run(runner))
            while len(fake.errors["descriptions"]):
                await asyncio.sleep(0.01)
            fake.set_state(SUCCEEDED)
            return await waiting

        assert self.work(fake, end) == 0
        assert log_of(command).count(f"failed and is repeated: {denied}") == 1
        assert caplog.text.count(f"the jobs of {self.title} cannot be observed") == 1
