"""The lease of a cluster of ``ray:kubernetes``: the deadline of its Job on a small API server."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kuberay_cases import plan
from kuberay_pods import OPTIONS, Operator, operator, server, start
from kubernetes_server import NAMESPACE, ApiServer
from services import until

from hyperplane.clusters import records
from hyperplane.clusters.ray.kubernetes import lease
from hyperplane.clusters.ray.kubernetes.engine import KubernetesRayEngine
from hyperplane.platforms.kubernetes.errors import ObjectNotFound

__all__ = ["operator", "server"]  # fixtures

#: Seconds of the lease in these tests, and between renewals; no test waits for its end.
LEASE, INTERVAL = 60, 2
OWNER = """
import sys, time
import hyperplane
from hyperplane.clusters.ray.kubernetes import lease
from hyperplane.clusters.ray.kubernetes.engine import KubernetesRayEngine

lease.RENEWAL_INTERVAL = {interval}

plan = hyperplane.plan_cluster(
    1, nprocs=1, engine="ray:kubernetes", name="flights", engine_options={options}
)
client, cluster = KubernetesRayEngine().start(plan)
print("ready", flush=True)
time.sleep(600)
"""


class JobController:
    """Deletes the Job after its deadline, as Kubernetes does with one that has failed."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server

    @property
    def deadline(self) -> int | None:
        job = self.server.objects.get(("jobs", "flights-idle"))
        return None if job is None else job["spec"].get("activeDeadlineSeconds")

    def ends(self, passed: float) -> bool:
        """Delete the Job if its deadline has passed; return whether no object is left."""
        if self.deadline is not None and passed > self.deadline:
            self.server.respond("DELETE", f"/namespaces/{NAMESPACE}/jobs/flights-idle", b"")
        return self.server.objects == {}

    def await_renewal(self) -> int:
        """Wait until the deadline was postponed; return the one before."""
        before = self.deadline
        assert before is not None
        until(lambda: (self.deadline or 0) > before)
        return before


class FaultyApi:
    """The requests of a lease, which fail as a test wants."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job, self.errors, self.answered_at = job, list[BaseException](), None
        self.patches = 0

    async def get(self, *names: str) -> dict[str, Any]:
        return copy.deepcopy(self.job)

    async def patch(self, kind: str, name: str, operations: str, version: str) -> None:
        self.patches += 1
        if self.errors:
            raise self.errors.pop(0)
        for operation in json.loads(operations):
            if operation["op"] == "add":
                self.job["spec"]["activeDeadlineSeconds"] = operation["value"]


def skip_time(monkeypatch: pytest.MonkeyPatch, name: str, seconds: float) -> None:
    """Make a clock of the module time show a later time."""
    read = getattr(time, name)
    monkeypatch.setattr(time, name, lambda *which: read(*which) + seconds)


@contextmanager
def owner(**options: Any) -> Iterator[subprocess.Popen[str]]:
    """A program that has started a cluster."""
    settings = {**OPTIONS, "lease_timeout": LEASE, **options}
    program = OWNER.format(options=settings, interval=INTERVAL)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.process
def test_a_cluster_ends_when_its_program_was_killed(server: ApiServer, operator: Operator) -> None:
    controller = JobController(server)
    with owner() as process:
        first = controller.await_renewal()
        assert not controller.ends(first + 0.5), "its program renews the lease"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    last = controller.deadline
    assert last is not None
    assert not controller.ends(last)
    assert controller.ends(last + 1)
    assert records.read_all() == [], "removes the files of programs that were killed"


@pytest.mark.slow
@pytest.mark.process
def test_a_program_that_is_attached_keeps_a_cluster_without_its_owner(
    server: ApiServer, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEWAL_INTERVAL", INTERVAL)
    controller = JobController(server)
    settings: Any = plan({**OPTIONS, "lease_timeout": LEASE}).settings
    with owner() as process:
        attached = KubernetesRayEngine().connect("flights", settings).cluster
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    last = controller.await_renewal()
    assert not controller.ends(last + 0.5)
    attached.detach()
    assert controller.deadline is not None
    assert controller.ends(controller.deadline + 1)
    assert records.read_all() == []


def test_the_job_has_a_deadline_from_its_creation(
    server: ApiServer, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may be killed before it renews the lease."""
    created: list[Any] = []

    def create_slowly(job: dict[str, Any]) -> list[dict[str, Any]]:
        created.append(copy.deepcopy(job))
        return []

    server.run = create_slowly
    monkeypatch.setattr(lease, "_read_clocks", lambda: [time.monotonic() + 100 * len(created)])
    _, cluster = start(options={"lease_timeout": LEASE})
    first, deadline = created[0]["spec"]["activeDeadlineSeconds"], JobController(server).deadline
    assert first == cluster.plan.request.timeout + LEASE
    assert deadline is not None
    assert LEASE + 100 <= deadline < first
    cluster.close()


@pytest.mark.slow
def test_a_first_renewal_that_fails_is_repeated(
    server: ApiServer, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEWAL_INTERVAL", INTERVAL)

    def refuse(job: dict[str, Any]) -> list[dict[str, Any]]:
        server.refusals["PATCH", "jobs"] = [403] * 4
        return []

    server.run = refuse
    _, cluster = start(options={"lease_timeout": LEASE})
    first = cluster.plan.request.timeout + LEASE
    until(lambda: (JobController(server).deadline or first) < first)
    cluster.close()


def test_many_programs_that_attach_do_not_lengthen_the_lease(
    server: ApiServer, operator: Operator
) -> None:
    settings: Any = plan({**OPTIONS, "lease_timeout": 1000}).settings
    shorter: Any = plan({**OPTIONS, "lease_timeout": LEASE}).settings
    _, own = start(options={"lease_timeout": 1000})
    own.detach()
    job = server.objects["jobs", "flights-idle"]
    ago = datetime.now(UTC) - timedelta(seconds=5000)
    job["status"] = {"startTime": ago.strftime("%Y-%m-%dT%H:%M:%SZ")}
    deadlines = []
    for each in (settings, settings, settings, shorter):
        KubernetesRayEngine().connect("flights", each).cluster.detach()
        deadlines.append(JobController(server).deadline or 0)
    assert deadlines[0] >= 6000
    assert deadlines[2] < 6900, "each adds its lease to the age of the Job"
    assert deadlines[3] == deadlines[2], "a shorter lease leaves the longer one of another program"


@pytest.mark.parametrize("status", [403, 500])
def test_a_lease_that_cannot_be_loaded_is_a_warning(
    server: ApiServer, operator: Operator, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    _, own = start()
    own.detach()
    server.refusals["GET", "jobs"] = [status] * 10
    settings: Any = plan(OPTIONS).settings
    attached = KubernetesRayEngine().connect("flights", settings).cluster
    assert "ends with the program that started it" in caplog.text
    attached.close()


@pytest.mark.parametrize("has_clock", [True, False])
def test_a_deadline_counts_the_time_of_a_suspended_machine(
    monkeypatch: pytest.MonkeyPatch, has_clock: bool
) -> None:
    if not has_clock:
        monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    elif not hasattr(time, "CLOCK_BOOTTIME"):
        pytest.skip("this system has no such clock")
    api: Any = FaultyApi({"spec": {"activeDeadlineSeconds": 300}})
    job_lease = lease.JobLease(api, "flights-idle", 300)
    skip_time(monkeypatch, "clock_gettime" if has_clock else "time", 150)
    assert asyncio.run(job_lease.begin()) == ""
    assert api.job["spec"]["activeDeadlineSeconds"] >= 450


def test_failed_renewals_are_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    api: Any = FaultyApi({"spec": {"activeDeadlineSeconds": 1}})
    api.errors = [ValueError("no JSON")] * 4 + [ObjectNotFound("deleted")]
    job_lease = lease.JobLease(api, "flights-idle", 1e-9)
    job_lease._interval = 0.01
    asyncio.run(job_lease.renew())
    assert api.patches == 5, "errors of all kinds do not end the renewals"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "no JSON" in caplog.text


def test_a_renewal_that_hangs_does_not_use_up_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEWAL_INTERVAL", 0.01)
    api: Any = FaultyApi({"spec": {"activeDeadlineSeconds": 1}})
    tried = []

    async def hang(*names: str) -> dict[str, Any]:
        tried.append(names)
        if len(tried) > 2:
            raise ObjectNotFound("deleted")
        await asyncio.sleep(600)
        raise AssertionError

    monkeypatch.setattr(api, "get", hang)
    asyncio.run(lease.JobLease(api, "flights-idle", 300).renew())
    assert len(tried) == 3


def test_a_list_of_workers_does_not_renew_the_lease(server: ApiServer, operator: Operator) -> None:
    _, own = start()
    record = own.record
    own.detach()
    before = server.requests.count(("PATCH", "jobs"))
    settings: Any = plan(OPTIONS).settings
    assert len(KubernetesRayEngine().list_workers(record, settings)) == 2
    assert server.requests.count(("PATCH", "jobs")) == before


@pytest.mark.parametrize(
    ("method", "idle_timeout", "end"),
    [
        ("PATCH", "1 hour", "ends only after its idle timeout"),
        ("GET", None, "runs until it is deleted"),
    ],
)
def test_without_permission_there_is_a_warning_and_no_lease(
    server: ApiServer,
    operator: Operator,
    caplog: pytest.LogCaptureFixture,
    method: str,
    idle_timeout: str | None,
    end: str,
) -> None:
    server.refusals[method, "jobs"] = [403] * 10  # kr8s logs in again and retries
    _, cluster = start(options={"idle_timeout": idle_timeout})
    assert end in caplog.text
    assert JobController(server).deadline is None
    cluster.close()
    assert server.objects == {}


def test_keep_alive_means_no_lease(server: ApiServer, operator: Operator) -> None:
    _, cluster = start(options={"keep_alive": True})
    assert JobController(server).deadline is None
    assert ("PATCH", "jobs") not in server.requests
    cluster.close()
    assert json.dumps(server.objects) == "{}"
