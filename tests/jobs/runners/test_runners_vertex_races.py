"""Attempts on Vertex AI with lost answers, full disks and cancellations, without a service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, cast

from gcp_race_contract import PROJECT, GcpRaceContract
from service_race_contract import (
    FIRST,
    RUNNING,
    SUCCEEDED,
    FakeService,
    Runner,
    log_of,
    wait_for_line,
)

from hyperplane.core.errors.platforms import PlatformError
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.vertex.runner import VertexRunner
from hyperplane.jobs.runners.vertex.vertex_client import VertexClient
from hyperplane.jobs.runners.vertex.vertex_job_id import VertexJobId
from hyperplane.jobs.runners.vertex.vertex_process import VertexProcess
from hyperplane.platforms.gcp.errors import GcpConnectionError, GcpRequestError


class EmptyLogs:
    """Logs without lines, in place of ``LogReader``."""

    def follow(self, job: str, write: object) -> None:
        """Read nothing."""

    async def finish(self, job: str, is_patient: Callable[[], bool]) -> None:
        """Wait for nothing."""

    def close(self) -> None:
        """Close nothing."""


class FakeVertex(FakeService):
    """The requests of ``VertexApi`` and ``GcsStaging``, and the project of the session."""

    no_answer: ClassVar[PlatformError] = GcpConnectionError("no answer")
    throttled: ClassVar[PlatformError] = GcpRequestError("too many", 429)
    denied: ClassVar[PlatformError] = GcpRequestError("you may not cancel jobs", 403)
    broken: ClassVar[PlatformError] = GcpRequestError("server error", 500)
    unknown: ClassVar[PlatformError] = GcpRequestError("no such job", 404)

    def client(self) -> VertexClient:
        client = VertexClient(cast("Any", self), cast("Any", self))
        client.api, client.logs = cast("Any", self), cast("Any", EmptyLogs())
        return client

    def describe(self, job_id: str, state: str) -> dict[str, Any]:
        return {"name": job_id} | {
            "waiting": {"state": "JOB_STATE_PENDING"},
            "running": {"state": "JOB_STATE_RUNNING", "startTime": "1970-01-01T00:16:40Z"},
            "succeeded": {"state": "JOB_STATE_SUCCEEDED"},
            "ended": {"state": "JOB_STATE_CANCELLED", "error": {"message": "CANCELED"}},
        }[state]

    def project(self) -> str:
        return PROJECT

    def create(self, job: Any) -> str:
        return self.create_job(job["displayName"])

    def find_jobs(self, display_name: str) -> list[str]:
        return self.find(display_name)

    def read_jobs(self, names: Any) -> dict[str, dict[str, Any]]:
        return self.read(names)

    def cancel(self, name: str) -> None:
        self.end(name)


class TestVertexRaces(GcpRaceContract):
    title: ClassVar[str] = "Vertex AI"
    runner_type: ClassVar[type[Any]] = VertexRunner
    options: ClassVar[dict[str, Any]] = {
        "region": "europe-west4", "image": "i", "staging": "gs://flights/jobs"
    }  # fmt: skip
    process_type = VertexProcess
    job_id_type = VertexJobId
    unsent = VertexJobId("one", "hyperplane-")
    fake = FakeVertex

    def test_a_time_that_cannot_be_read_is_a_request_that_is_repeated(
        self, command: AttemptCommand
    ) -> None:
        fake = FakeVertex()
        fake.jobs[FIRST] = {**fake.describe(FIRST, RUNNING), "startTime": "soon"}

        async def run(runner: Runner) -> None:
            self.store_id(command)
            waiting = asyncio.ensure_future(runner.reattach(command).wait())
            text = "the answer of Google cannot be read (aiplatform customJobs.get): 'soon' is not"
            await wait_for_line(command, text)
            await asyncio.sleep(0.1)  # it is read several times
            assert log_of(command).count(text) == 1
            fake.set_state(SUCCEEDED)
            assert await waiting == 0

        self.work(fake, run)
