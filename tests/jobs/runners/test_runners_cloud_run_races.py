"""Attempts on Cloud Run with lost answers, full disks and cancellations, without a service."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import pytest
from gcp_race_contract import PROJECT, GcpRaceContract
from service_race_contract import (
    FIRST,
    SUCCEEDED,
    FakeService,
    Runner,
    log_of,
)
from test_runners_vertex_races import EmptyLogs

from hyperplane.core.errors.platforms import PlatformError
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.cloud_run.cloud_run_client import CloudRunClient
from hyperplane.jobs.runners.cloud_run.cloud_run_job_id import CloudRunJobId
from hyperplane.jobs.runners.cloud_run.cloud_run_process import CloudRunProcess
from hyperplane.jobs.runners.cloud_run.runner import CloudRunRunner
from hyperplane.platforms.gcp.cloud_run import job_name
from hyperplane.platforms.gcp.errors import GcpConnectionError, GcpRequestError

END = "1970-01-01T00:20:00Z"


class FakeCloudRun(FakeService):
    """The requests of ``CloudRunApi`` and ``GcsStaging``."""

    no_answer: ClassVar[PlatformError] = GcpConnectionError("no answer")
    throttled: ClassVar[PlatformError] = GcpRequestError("too many", 429)
    denied: ClassVar[PlatformError] = GcpRequestError("you may not cancel executions", 403)
    broken: ClassVar[PlatformError] = GcpRequestError("server error", 500)
    unknown: ClassVar[PlatformError] = GcpRequestError("no such execution", 404)

    def __init__(self, **errors: list[PlatformError | None]) -> None:
        super().__init__(**errors)
        self.deleted: list[str] = []

    def client(self) -> CloudRunClient:
        client = CloudRunClient(cast("Any", self), cast("Any", self))
        client.api, client.logs = cast("Any", self), cast("Any", EmptyLogs())
        return client

    def describe(self, job_id: str, state: str) -> dict[str, Any]:
        started = {"startTime": "1970-01-01T00:16:40Z", "runningCount": 1}
        cancelled = {"state": "CONDITION_FAILED", "executionReason": "CANCELLED"}
        execution: dict[str, Any] = {
            "waiting": {},
            "running": started,
            "succeeded": {"completionTime": END, "conditions": [
                {"type": "Completed", "state": "CONDITION_SUCCEEDED"}
            ]},
            "ended": {"completionTime": END, "conditions": [{"type": "Completed", **cancelled}]},
        }[state]  # fmt: skip
        return {"execution": {"name": job_id, **execution}, "task": {}}

    def project(self) -> str:
        return PROJECT

    def create(self, name: str, job: Any) -> str:
        return self.create_job(name)

    def find_job(self, name: str) -> dict[str, Any] | None:
        found = self.find(name)
        return {"name": found[0], "labels": {"hyperplane-job": self.owner}} if found else None

    def read(self, execution: Any) -> Any:
        name = job_name(execution)
        return super().read([name]).get(name)

    def cancel(self, name: str) -> None:
        self.end(job_name(name))

    def delete(self, name: str) -> None:
        error = self.next_error("deletions")
        if error is not None:
            raise error
        self.deleted.append(name)


class TestCloudRunRaces(GcpRaceContract):
    title: ClassVar[str] = "Cloud Run"
    runner_type: ClassVar[type[Any]] = CloudRunRunner
    options: ClassVar[dict[str, Any]] = {
        "region": "europe-west4", "image": "i", "staging": "gs://flights/jobs"
    }  # fmt: skip
    process_type = CloudRunProcess
    job_id_type = CloudRunJobId
    unsent = CloudRunJobId("one", "owner")
    fake = FakeCloudRun

    @pytest.fixture(autouse=True)
    def owned(self, monkeypatch: pytest.MonkeyPatch, command: AttemptCommand) -> None:
        owner = command.attempt_prefix.parents[2].name
        monkeypatch.setattr(FakeCloudRun, "owner", owner, raising=False)

    def ended(self, fake: FakeCloudRun, command: AttemptCommand) -> None:
        fake.set_state(SUCCEEDED)
        run = self.watched(command)
        assert self.work(fake, run) == 0

    def test_a_job_is_deleted_after_its_end(self, command: AttemptCommand) -> None:
        fake = FakeCloudRun()
        self.ended(fake, command)
        assert fake.deleted == [FIRST]

    def test_a_deletion_is_repeated_while_the_service_does_not_answer(
        self, command: AttemptCommand
    ) -> None:
        fake = FakeCloudRun(deletions=[FakeCloudRun.no_answer, FakeCloudRun.throttled])
        self.ended(fake, command)
        assert fake.deleted == [FIRST]
        assert "was not deleted" not in log_of(command)

    def test_a_refused_deletion_says_what_to_do(self, command: AttemptCommand) -> None:
        fake = FakeCloudRun(deletions=[FakeCloudRun.denied])
        self.ended(fake, command)
        assert fake.deleted == []
        text = f"job {FIRST} was not deleted: {FakeCloudRun.denied}; delete it with: gcloud run"
        assert text in log_of(command)

    def test_a_damaged_description_is_a_request_that_is_repeated(
        self, command: AttemptCommand
    ) -> None:
        fake = FakeCloudRun()
        fake.jobs[FIRST] = {"execution": {"conditions": "none"}}

        async def run(runner: Runner) -> int | None:
            self.store_id(command)
            process = runner.reattach(command)
            assert not await process._is_finished()
            fake.set_state(SUCCEEDED)
            code: int | None = await process.wait()
            return code

        assert self.work(fake, run) == 0
        assert "the answer of Google cannot be read (run executions.get)" in log_of(command)
