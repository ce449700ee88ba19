"""Attempts on Amazon EMR with lost answers, full disks and cancellations, without a service."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, cast

from driver_race_contract import FAILED, STARTED, DriverRaceContract, FakeDriverService
from service_race_contract import ENDED, SUCCEEDED, Runner

from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.driver_client import DriverClient
from hyperplane.jobs.runners.emr.emr_client import EmrClient
from hyperplane.jobs.runners.emr.emr_job_id import EmrJobId
from hyperplane.jobs.runners.emr.emr_process import EmrProcess
from hyperplane.jobs.runners.emr.runner import EmrRunner

CLUSTER = "j-1"


class FakeEmr(FakeDriverService):
    """The requests of ``EmrApi`` and ``S3Staging``."""

    client_type: ClassVar[type[DriverClient[Any]]] = EmrClient
    cluster_state = "TERMINATED"

    def api(self) -> Any:
        return FakeEmrApi(self)

    def describe(self, job_id: str, state: str) -> dict[str, Any]:
        states = {"waiting": "PENDING", "succeeded": "COMPLETED", "ended": "CANCELLED"}
        status: dict[str, Any] = {"State": states.get(state, state.upper())}
        if state != "waiting":
            status["Timeline"] = {"StartDateTime": STARTED}
        cluster = self.cluster_state if state in (SUCCEEDED, ENDED, FAILED) else "RUNNING"
        return {
            "Step": {"Id": "s-1", "Status": status},
            "Cluster": {
                "Id": CLUSTER,
                "LogUri": "s3n://flights/logs/",
                "Status": {"State": cluster},
            },
        }


class FakeEmrApi:
    """The requests of ``EmrApi``, answered by a :class:`FakeEmr`."""

    def __init__(self, fake: FakeEmr) -> None:
        self._fake = fake

    def start(self, request: Any) -> str:
        return self._fake.create_job(request["Name"])

    def find_clusters(self, name: str, since: float) -> list[str]:
        del since
        return self._fake.find(name)

    def read_runs(self, cluster: str, runs: Any) -> Any:
        del cluster
        return self._fake.read(list(runs))

    def stop(self, run: str) -> None:
        self._fake.end(run)

    def account(self) -> str:
        return "111111111111"


class TestEmrRaces(DriverRaceContract):
    title: ClassVar[str] = "Amazon EMR"
    runner_type: ClassVar[type[Any]] = EmrRunner
    options: ClassVar[dict[str, Any]] = {"staging": "s3://flights/jobs"}
    process_type = EmrProcess
    job_id_type = EmrJobId
    unsent = EmrJobId("one")
    fake = FakeEmr
    first = CLUSTER
    service_log = "logs/j-1/steps/s-1/stderr.gz"

    def wait(self, fake: FakeEmr, command: AttemptCommand) -> int | None:
        async def run(runner: Runner) -> int | None:
            return await runner.reattach(command).wait()

        return cast("int | None", self.work(fake, run))

    def test_a_cluster_that_runs_after_its_step_is_ended(self, command: AttemptCommand) -> None:
        fake = FakeEmr()
        fake.cluster_state = "WAITING"
        self.unsent.with_id(CLUSTER).write(command)
        fake.set_state(SUCCEEDED, CLUSTER)
        assert self.wait(fake, command) == 0
        assert fake.ended == [CLUSTER]

    def test_a_cluster_of_a_user_is_not_ended(self, command: AttemptCommand) -> None:
        fake = FakeEmr()
        fake.cluster_state = "WAITING"
        EmrJobId("one", CLUSTER, id="j-1/s-1").write(command)
        fake.set_state(SUCCEEDED, "j-1/s-1")
        assert self.wait(fake, command) == 0
        assert fake.ended == []


def test_the_search_of_a_step_is_in_its_cluster() -> None:
    """Steps of a cluster of the user are found there, and those of others in all clusters."""
    asked: list[tuple[Any, ...]] = []

    class Api:
        def find_steps(self, *arguments: Any) -> list[str]:
            asked.append(arguments)
            return ["j-1/s-1", "j-1/s-2"]

        def stop(self, run: str) -> None:
            asked.append((run,))

    async def search() -> Any:
        client = EmrClient(cast("Any", None), cast("Any", None))
        client.api = cast("Any", Api())
        try:
            return await client.find(EmrJobId("one", CLUSTER, written=10_000.0))
        finally:
            client.close()

    assert asyncio.run(search()) == "j-1/s-1"
    assert asked == [(CLUSTER, "one", 6400.0), ("j-1/s-2",)]
