"""Attempts on AWS Batch with lost answers, full disks and cancellations, without a service."""

from __future__ import annotations

import asyncio
import errno
import threading
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from job_cases import bash

from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners import retry_time, service_job_id, service_process
from hyperplane.jobs.runners.aws_batch import batch_process
from hyperplane.jobs.runners.aws_batch.batch_client import BatchClient
from hyperplane.jobs.runners.aws_batch.batch_job_id import BatchJobId
from hyperplane.jobs.runners.aws_batch.batch_process import BatchProcess
from hyperplane.jobs.runners.aws_batch.runner import AwsBatchRunner
from hyperplane.platforms.aws.errors import AwsConnectionError, AwsError, AwsRequestError

NO_ANSWER = AwsConnectionError("no answer")
THROTTLED = AwsRequestError("too many", "TooManyRequestsException", 429)
DENIED = AwsRequestError("you may not end jobs", "AccessDeniedException", 403)
BROKEN = AwsRequestError("server error", "ServerException", 500)


class FakeBatch:
    """The requests of ``BatchApi``, with answers that a test sets.

    Parameters
    ----------
    submissions, terminations, descriptions : list
        Errors of the next requests, in turn; None for a request that succeeds.
    """

    def __init__(self, **errors: list[AwsError | None]) -> None:
        self.errors = errors
        #: Names of accepted jobs by id, and whether ``find_jobs`` shows them.
        self.accepted: dict[str, str] = {}
        self.is_listed = True
        self.accepts_without_answer = True
        self.jobs: dict[str, dict[str, Any]] = {}
        self.submitted = 0
        self.terminated: list[str] = []
        self.on_upload: Callable[[], None] = lambda: None
        self.on_submit: Callable[[], None] = lambda: None

    def client(self) -> BatchClient:
        client = BatchClient(cast("Any", None), cast("Any", self))
        client.api = cast("Any", self)
        return client

    def upload_content(self, content: bytes, suffix: str) -> str:
        self.on_upload()
        return suffix

    def put(self, key: str, content: bytes) -> None:
        del key, content

    def register_definition(self, request: Any) -> str:
        return str(request["jobDefinitionName"])

    def account(self) -> str:
        return "111111111111"

    def submit(self, request: Any) -> str:
        self.submitted += 1
        self.on_submit()
        error = self._next("submissions")
        if error is None or (error is NO_ANSWER and self.accepts_without_answer):
            job_id = f"job-{self.submitted}"
            self.accepted[job_id] = request["jobName"]
            self.jobs[job_id] = {"jobId": job_id, "status": "RUNNABLE"}
        if error is not None:
            raise error
        return job_id

    def find_jobs(self, queue: str, name: str) -> list[str]:
        assert queue == "q"
        return [id_ for id_, each in self.accepted.items() if self.is_listed and each == name]

    def describe_jobs(self, ids: Any) -> dict[str, dict[str, Any]]:
        error = self._next("descriptions")
        if error is not None:
            raise error
        return {each: self.jobs[each] for each in ids if each in self.jobs}

    def terminate(self, job_id: str, reason: str) -> None:
        del reason
        error = self._next("terminations")
        if error is not None:
            raise error
        self.terminated.append(job_id)
        if job_id in self.jobs:
            self.jobs[job_id] = {"jobId": job_id, "status": "FAILED", "statusReason": "ended"}

    def _next(self, kind: str) -> AwsError | None:
        errors = self.errors.get(kind, [])
        return errors.pop(0) if errors else None


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchProcess, "poll_seconds", 0.01)
    monkeypatch.setattr(service_process, "END_SECONDS", 0.01)
    monkeypatch.setattr(service_process, "VANISHED_SECONDS", 0.1)
    monkeypatch.setattr(batch_process, "NEVER_STARTS_SECONDS", 0.05)
    monkeypatch.setattr(retry_time, "MAX_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(service_job_id, "UNCONFIRMED_SECONDS", 0.5)


@pytest.fixture
def command(tmp_path: Path) -> AttemptCommand:
    folder = tmp_path / str(uuid.uuid4()) / "steps" / "000-one"
    folder.mkdir(parents=True)
    command = AttemptCommand(("true",), {}, ".", folder / "attempt-1")
    command.file(".log").touch()
    return command


STEP = bash("one", "true")


def work(fake: FakeBatch, function: Callable[[AwsBatchRunner], Awaitable[Any]]) -> Any:
    """Call a function with a runner whose requests a double answers."""

    async def main() -> Any:
        runner = AwsBatchRunner({}, {"queue": "q", "image": "i", "staging": "s3://flights/jobs"})
        runner._client = fake.client()
        try:
            return await asyncio.wait_for(function(runner), 20)
        finally:
            await runner.close()

    return asyncio.run(main())


def log_of(command: AttemptCommand) -> str:
    return command.file(".log").read_text()


def test_a_job_that_is_listed_late_is_found_and_never_submitted_twice(
    command: AttemptCommand,
) -> None:
    fake = FakeBatch(submissions=[NO_ANSWER])
    fake.is_listed = False

    async def run(runner: AwsBatchRunner) -> None:
        process = await runner.start(command, STEP, 1.0)
        waiting = asyncio.ensure_future(process.wait())
        await asyncio.sleep(0.2)
        assert "no answer says whether job" in log_of(command)
        fake.is_listed = True
        await asyncio.sleep(0.1)
        fake.jobs["job-1"]["status"] = "SUCCEEDED"
        assert await waiting == 0

    work(fake, run)
    assert fake.submitted == 1
    assert fake.terminated == []


def test_a_submission_that_was_not_accepted_is_a_lost_attempt(command: AttemptCommand) -> None:
    fake = FakeBatch(submissions=[NO_ANSWER])
    fake.accepts_without_answer = False

    async def run(runner: AwsBatchRunner) -> int | None:
        return await (await runner.start(command, STEP, 1.0)).wait()

    started = time.monotonic()
    assert work(fake, run) is None
    assert time.monotonic() - started > 0.5
    assert "does not list it: the attempt is lost" in log_of(command)
    assert fake.submitted == 1


def test_the_time_of_a_search_begins_after_the_last_request(command: AttemptCommand) -> None:
    # As if the submission had been refused for longer than a job may take to appear.
    fake = FakeBatch(submissions=[THROTTLED, NO_ANSWER])

    async def run(runner: AwsBatchRunner) -> None:
        await runner.start(command, STEP, 1.0)
        stored = BatchJobId.read(command)
        assert stored is not None
        assert not stored.id
        assert time.time() - stored.written < 0.4  # the pause after the refusal is 1 s

    work(fake, run)
    assert fake.submitted == 2


def test_a_server_error_is_followed_by_a_search_not_by_a_second_job(
    command: AttemptCommand,
) -> None:
    fake = FakeBatch(submissions=[BROKEN])

    async def run(runner: AwsBatchRunner) -> int | None:
        return await (await runner.start(command, STEP, 1.0)).wait()

    assert work(fake, run) is None
    assert fake.submitted == 1


def test_a_full_disk_after_the_answer_is_no_reason_to_submit_again(
    command: AttemptCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeBatch()
    write = BatchJobId.write

    def full(self: BatchJobId, target: AttemptCommand) -> None:
        if self.id:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, target)

    monkeypatch.setattr(BatchJobId, "write", full)

    async def run(runner: AwsBatchRunner) -> int | None:
        process = await runner.start(command, STEP, 1.0)
        fake.jobs["job-1"]["status"] = "SUCCEEDED"
        return await process.wait()

    assert work(fake, run) == 0
    assert fake.submitted == 1


def test_a_full_disk_before_the_request_sends_nothing(
    command: AttemptCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: BatchJobId, target: AttemptCommand) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(BatchJobId, "write", full)
    fake = FakeBatch()
    with pytest.raises(OSError, match="No space left"):
        work(fake, lambda runner: runner.start(command, STEP, 1.0))
    assert fake.submitted == 0


def test_nothing_is_sent_after_a_cancellation_during_the_upload(command: AttemptCommand) -> None:
    fake = FakeBatch()
    uploading, release = threading.Event(), threading.Event()

    def upload() -> None:
        uploading.set()
        release.wait(10)

    fake.on_upload = upload

    async def run(runner: AwsBatchRunner) -> None:
        start = asyncio.ensure_future(runner.start(command, STEP, 1.0))
        await asyncio.to_thread(uploading.wait)
        started = time.monotonic()
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        assert time.monotonic() - started < 5
        assert await runner.reattach(command).end(1.0) is None
        release.set()
        await asyncio.sleep(0.2)

    try:
        work(fake, run)
    finally:
        release.set()
    assert fake.submitted == 0


def test_a_job_that_is_sent_during_a_cancellation_is_stored_and_ended(
    command: AttemptCommand,
) -> None:
    fake = FakeBatch()
    sending, release = threading.Event(), threading.Event()

    def send() -> None:
        sending.set()
        release.wait(10)

    fake.on_submit = send

    async def run(runner: AwsBatchRunner) -> None:
        start = asyncio.ensure_future(runner.start(command, STEP, 1.0))
        await asyncio.to_thread(sending.wait)
        start.cancel()
        await asyncio.sleep(0.1)
        assert not start.done()
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await start
        await runner.reattach(command).end(1.0)

    work(fake, run)
    assert fake.terminated == ["job-1"]


def test_a_cancellation_between_refusals_leaves_nothing_to_search(command: AttemptCommand) -> None:
    fake = FakeBatch(submissions=[THROTTLED] * 100)

    async def run(runner: AwsBatchRunner) -> None:
        start = asyncio.ensure_future(runner.start(command, STEP, 1.0))
        while not fake.submitted:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        assert BatchJobId.read(command) is None

    work(fake, run)
    assert fake.accepted == {}


def watched(fake: FakeBatch, command: AttemptCommand, index: int | None = None) -> Any:
    """Store the id of a job, and return the coroutine that waits for its end."""
    BatchJobId("one", "q", index, id="job-1", written=time.time()).write(command)

    async def run(runner: AwsBatchRunner) -> int | None:
        return await runner.reattach(command).wait()

    return run


def test_a_vanished_job_is_ended_before_it_is_lost(command: AttemptCommand) -> None:
    fake = FakeBatch(terminations=[THROTTLED, DENIED])
    assert work(fake, watched(fake, command)) is None
    assert fake.terminated == ["job-1"]
    assert "you may not end jobs" in log_of(command)
    assert "AWS Batch has no job job-1: the attempt is lost" in log_of(command)


@pytest.mark.parametrize("job_id", ["job-1", ""])
def test_a_job_of_another_account_is_not_lost(command: AttemptCommand, job_id: str) -> None:
    fake = FakeBatch()
    BatchJobId("one", "q", None, "222222222222", id=job_id, written=1000.0).write(command)

    async def run(runner: AwsBatchRunner) -> None:
        waiting = asyncio.ensure_future(runner.reattach(command).wait())
        await asyncio.sleep(0.6)
        assert not waiting.done()
        waiting.cancel()

    work(fake, run)
    assert fake.terminated == []
    assert "account 222222222222 of Amazon, but the credentials are of account 111111111111" in (
        log_of(command)
    )


def test_the_account_of_a_submission_is_stored(command: AttemptCommand) -> None:
    work(FakeBatch(), lambda runner: runner.start(command, STEP, 1.0))
    stored = BatchJobId.read(command)
    assert stored is not None
    assert (stored.id, stored.account) == ("job-1", "111111111111")


def test_a_job_that_batch_does_not_know_at_all_is_lost(command: AttemptCommand) -> None:
    unknown = AwsRequestError("no such job", "ClientException", 404)
    fake = FakeBatch(terminations=[unknown])
    assert work(fake, watched(fake, command)) is None
    assert "the attempt is lost" in log_of(command)


def test_errors_do_not_count_as_the_time_of_a_missing_job(command: AttemptCommand) -> None:
    fake = FakeBatch(descriptions=[None, *[NO_ANSWER] * 8, None])
    run = watched(fake, command)

    async def appear(runner: AwsBatchRunner) -> int | None:
        waiting = asyncio.ensure_future(run(runner))
        while len(fake.errors["descriptions"]):
            await asyncio.sleep(0.01)
        fake.jobs["job-1"] = {"jobId": "job-1", "status": "SUCCEEDED"}
        return await waiting

    assert work(fake, appear) == 0
    assert fake.terminated == []


def test_a_missing_child_is_not_lost_while_its_array_runs(command: AttemptCommand) -> None:
    fake = FakeBatch()
    fake.jobs["job-1"] = {"jobId": "job-1", "status": "PENDING"}
    run = watched(fake, command, 0)

    async def appear(runner: AwsBatchRunner) -> int | None:
        waiting = asyncio.ensure_future(run(runner))
        await asyncio.sleep(0.6)
        assert not waiting.done()
        fake.jobs["job-1:0"] = {"jobId": "job-1:0", "status": "SUCCEEDED"}
        return await waiting

    assert work(fake, appear) == 0
    assert fake.terminated == []
    assert "array job-1 is PENDING, without this chunk" in log_of(command)


def test_a_job_that_can_never_start_fails_after_its_end_is_confirmed(
    command: AttemptCommand,
) -> None:
    fake = FakeBatch(terminations=[THROTTLED, DENIED, NO_ANSWER])
    fake.jobs["job-1"] = {
        "jobId": "job-1", "status": "RUNNABLE", "statusReason": "MISCONFIGURATION:X - too large"
    }  # fmt: skip
    assert work(fake, watched(fake, command)) == batch_process.CONFIGURATION_ERROR
    assert fake.errors["terminations"] == []
    assert fake.terminated == ["job-1"]


def cancelled(fake: FakeBatch, command: AttemptCommand) -> int | None:
    fake.jobs["job-1"] = {"jobId": "job-1", "status": "RUNNING", "startedAt": 1000}
    BatchJobId("one", "q", id="job-1", written=time.time()).write(command)

    async def run(runner: AwsBatchRunner) -> int | None:
        return await runner.reattach(command).end(1.0)

    return cast("int | None", work(fake, run))


def test_a_refused_cancellation_says_why(
    command: AttemptCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BatchProcess, "confirm_seconds", 0.3)
    assert cancelled(FakeBatch(terminations=[DENIED] * 1000), command) is None
    text = "does not confirm that the step has ended: you may not end jobs; check job one"
    assert text in log_of(command)


def test_a_cancellation_is_repeated_until_batch_answers(
    command: AttemptCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BatchProcess, "confirm_seconds", 0.4)
    fake = FakeBatch(terminations=[NO_ANSWER] * 10)
    assert cancelled(fake, command) == 1
    assert fake.terminated == ["job-1"]


def test_errors_while_a_job_runs_are_in_its_log_once(
    command: AttemptCommand, caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakeBatch(descriptions=[None, DENIED, DENIED, DENIED])
    fake.jobs["job-1"] = {"jobId": "job-1", "status": "RUNNING", "startedAt": 1000}
    run = watched(fake, command)

    async def end(runner: AwsBatchRunner) -> int | None:
        waiting = asyncio.ensure_future(run(runner))
        while len(fake.errors["descriptions"]):
            await asyncio.sleep(0.01)
        fake.jobs["job-1"]["status"] = "SUCCEEDED"
        return await waiting

    assert work(fake, end) == 0
    assert log_of(command).count("failed and is repeated: you may not end jobs") == 1
    assert caplog.text.count("the jobs of AWS Batch cannot be observed") == 1
