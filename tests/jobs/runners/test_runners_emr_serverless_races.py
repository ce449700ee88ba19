"""Attempts on EMR Serverless with lost answers, full disks and cancellations, without a service."""

from __future__ import annotations

from typing import Any, ClassVar

from driver_race_contract import STARTED, DriverRaceContract, FakeDriverService
from service_race_contract import STEP, Runner

from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.driver_client import DriverClient
from hyperplane.jobs.runners.emr_serverless.runner import EmrServerlessRunner
from hyperplane.jobs.runners.emr_serverless.serverless_client import ServerlessClient
from hyperplane.jobs.runners.emr_serverless.serverless_job_id import ServerlessJobId
from hyperplane.jobs.runners.emr_serverless.serverless_process import ServerlessProcess


class FakeServerless(FakeDriverService):
    """The requests of ``EmrServerlessApi`` and ``S3Staging``."""

    client_type: ClassVar[type[DriverClient[Any]]] = ServerlessClient

    def __init__(self, **errors: Any) -> None:
        super().__init__(**errors)
        self.tokens: list[str] = []

    def api(self) -> Any:
        return FakeServerlessApi(self)

    def describe(self, job_id: str, state: str) -> dict[str, Any]:
        states = {"waiting": "SCHEDULED", "succeeded": "SUCCESS", "ended": "CANCELLED"}
        logs = {"s3MonitoringConfiguration": {"logUri": "s3://flights/logs/"}}
        return {
            "applicationId": "00f1",
            "jobRunId": "1",
            "state": states.get(state, state.upper()),
            "startedAt": STARTED,
            "configurationOverrides": {"monitoringConfiguration": logs},
        }


class FakeServerlessApi:
    """The requests of ``EmrServerlessApi``, answered by a :class:`FakeServerless`."""

    def __init__(self, fake: FakeServerless) -> None:
        self._fake = fake

    def start(self, request: Any) -> str:
        self._fake.tokens.append(request["clientToken"])
        return self._fake.create_job(request["name"])

    def find_runs(self, application: str, name: str, since: float) -> list[str]:
        assert application == "00f1"
        del since
        return self._fake.find(name)

    def read_run(self, run: str) -> Any:
        return self._fake.read([run]).get(run)

    def stop(self, run: str) -> None:
        self._fake.end(run)

    def account(self) -> str:
        return "111111111111"


class TestServerlessRaces(DriverRaceContract):
    title: ClassVar[str] = "EMR Serverless"
    runner_type: ClassVar[type[Any]] = EmrServerlessRunner
    options: ClassVar[dict[str, Any]] = {
        "application": "00f1",
        "role": "arn:aws:iam::111111111111:role/serverless",
        "staging": "s3://flights/jobs",
    }
    process_type = ServerlessProcess
    job_id_type = ServerlessJobId
    unsent = ServerlessJobId("one", "00f1")
    fake = FakeServerless
    service_log = "logs/applications/00f1/jobs/1/SPARK_DRIVER/stderr.gz"

    def test_a_request_that_is_repeated_has_the_same_token(self, command: AttemptCommand) -> None:
        fake = FakeServerless(creations=[FakeServerless.throttled] * 2)

        async def run(runner: Runner) -> None:
            await runner.start(command, STEP, 1.0)

        self.work(fake, run)
        assert len(fake.tokens) == 3
        assert len(set(fake.tokens)) == 1
