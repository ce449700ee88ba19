"""The lease on remote schedulers, which may not have this package."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from distributed import Scheduler
from distributed.core import rpc
from distributed.protocol.pickle import dumps
from kubernetes_cases import rendered
from services import until

import hyperplane
import hyperplane.clusters.dask.gateway.start as gateway_start
from hyperplane.clusters.dask.gateway import plugins
from hyperplane.clusters.dask.lease_renewal import create_renewal
from hyperplane.guard.lease import LeaseGuard

#: `dask scheduler` of a pod without this package.
SCHEDULER = """
import sys

sys.modules["hyperplane"] = None
from distributed.cli.dask_scheduler import main

main()
"""
#: A program that uses a cluster; it prints its name, and then does what its second argument says.
OWNER = """
import ctypes, sys, time
from distributed import Client

client = Client(sys.argv[1], set_as_default=False)
print(client.id, flush=True)
sys.stdin.readline()
if sys.argv[2] == "hold-gil":
    print("holds", flush=True)
    ctypes.PyDLL(None).sleep(3)
    print("released", flush=True)
time.sleep(600)
"""
#: Seconds of the lease of a scheduler process. The longer limit applies while a connection is open,
#: so that a busy machine changes no result.
LEASE = 0.5
#: Seconds of the lease in the test in which a cluster object must renew it in time.
RENEWED_LEASE = 1.5


def scheduler_preloads(**options: Any) -> list[str]:
    """The preloads, as text, of a scheduler in a pod."""
    [container] = rendered(options, timeout=60)["spec"]["scheduler"]["spec"]["containers"]
    args = container["args"]
    preloads = [args[at + 1] for at, arg in enumerate(args) if arg == "--preload"]
    return [text.replace("$$", "$") for text in preloads]


class SchedulerProcess:
    """A scheduler process with the preloads of a pod, and the answer that the operator gets."""

    def __init__(self, folder: Path) -> None:
        file = folder / "scheduler.json"
        preloads = [
            word for text in scheduler_preloads(lease_timeout=LEASE) for word in ("--preload", text)
        ]
        address = ["--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0"]
        command = [sys.executable, "-c", SCHEDULER, *address, "--scheduler-file", str(file)]
        self.process = subprocess.Popen([*command, *preloads], cwd=folder)
        until(file.exists)
        self.address: str = json.loads(file.read_text())["address"]

    def idle_since(self) -> float | None:
        async def ask() -> float | None:
            async with rpc(self.address) as scheduler:
                answer: float | None = await scheduler.check_idle()
                return answer

        return asyncio.run(ask())

    def has_expired(self) -> bool:
        """Return whether the operator would delete the cluster, whatever its idle timeout."""
        return self.idle_since() == 1.0


@contextmanager
def running_scheduler(folder: Path) -> Iterator[SchedulerProcess]:
    started = SchedulerProcess(folder)
    yield started
    started.process.kill()
    started.process.wait()


@pytest.fixture
def new_scheduler(tmp_path: Path) -> Iterator[SchedulerProcess]:
    """A scheduler that had no client."""
    with running_scheduler(tmp_path) as started:
        yield started


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchedulerProcess]:
    """A scheduler whose lease may have expired in another test."""
    with running_scheduler(tmp_path_factory.mktemp("scheduler")) as started:
        yield started


def start_owner(scheduler: SchedulerProcess, action: str = "") -> subprocess.Popen[str]:
    """Return a program whose client is connected."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, scheduler.address, action],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    assert owner.stdout.readline().startswith("Client-")
    return owner


def end(owner: subprocess.Popen[str]) -> None:
    owner.kill()
    owner.communicate()


pytestmark = [pytest.mark.cluster]


@pytest.mark.slow
def test_the_operator_ends_a_cluster_whose_program_was_killed(
    new_scheduler: SchedulerProcess,
) -> None:
    scheduler = new_scheduler
    assert not scheduler.has_expired(), "it starts"
    owner = start_owner(scheduler)
    time.sleep(3 * LEASE)
    assert not scheduler.has_expired()
    end(owner)
    until(scheduler.has_expired)
    other = start_owner(scheduler)  # before the operator has asked
    until(lambda: not scheduler.has_expired())
    end(other)


@pytest.mark.slow
def test_a_program_that_is_stopped_or_holds_the_gil_keeps_its_cluster(
    scheduler: SchedulerProcess,
) -> None:
    owner = start_owner(scheduler, "hold-gil")
    until(lambda: not scheduler.has_expired())
    assert owner.stdin is not None
    assert owner.stdout is not None
    os.kill(owner.pid, signal.SIGSTOP)
    time.sleep(3 * LEASE)
    assert not scheduler.has_expired()
    os.kill(owner.pid, signal.SIGCONT)
    owner.stdin.write("\n")
    owner.stdin.flush()
    assert owner.stdout.readline() == "holds\n"
    time.sleep(3 * LEASE)
    assert not scheduler.has_expired()
    assert owner.stdout.readline() == "released\n"
    end(owner)
    until(scheduler.has_expired)


@pytest.mark.slow
def test_a_scheduler_that_was_stopped_waits_for_heartbeats(scheduler: SchedulerProcess) -> None:
    owner = start_owner(scheduler)
    until(lambda: not scheduler.has_expired())
    os.kill(scheduler.process.pid, signal.SIGSTOP)
    time.sleep(3 * LEASE)
    os.kill(scheduler.process.pid, signal.SIGCONT)
    assert not scheduler.has_expired()
    time.sleep(LEASE)
    assert not scheduler.has_expired()
    end(owner)
    until(scheduler.has_expired)


class ClusterObject:
    """The part of a cluster object that renews the lease."""

    def __init__(self, scheduler_comm: Any) -> None:
        self.scheduler_comm = scheduler_comm


@pytest.mark.slow
def test_a_cluster_object_renews_the_lease_without_a_client() -> None:
    asyncio.run(_renew_without_client())


async def _renew_without_client() -> None:
    async with Scheduler(dashboard_address="127.0.0.1:0", host="127.0.0.1") as scheduler:
        guard = LeaseGuard(RENEWED_LEASE, RENEWED_LEASE)
        scheduler.add_plugin(guard)
        await guard.start(scheduler)
        cluster = ClusterObject(rpc(scheduler.address))
        renewal = create_renewal(cluster, RENEWED_LEASE)
        renewal.start()
        await asyncio.sleep(2 * RENEWED_LEASE)
        assert not guard.expired
        renewal.stop()
        while not guard.expired:
            await asyncio.sleep(0.05)
        await cluster.scheduler_comm.close_rpc()


def test_keep_alive_and_a_timeout_of_zero_mean_no_lease() -> None:
    leased = scheduler_preloads()
    assert "LEASE_SECONDS, START_SECONDS = 40, 60.0" in leased[1]
    for options in ({"keep_alive": True}, {"lease_timeout": 0}, {"lease_timeout": "0s"}):
        assert not any("LeaseGuard" in text for text in scheduler_preloads(**options))
    where = {"address": "http://127.0.0.1:1", "keep_alive": True}
    plan = hyperplane.plan_cluster(num_workers=1, engine="gateway", engine_options=where)
    sent = gateway_start._needed_plugins(plan, plan.settings)
    assert not any(isinstance(one, LeaseGuard) for one in sent)


def test_a_gateway_scheduler_without_this_package_gets_the_lease() -> None:
    with plugins.pickled_by_value():
        sent = dumps(plugins.GatewayLeaseGuard(30.0, 60.0))
    program = (
        "import pickle, sys\n"
        "sys.modules['hyperplane'] = None\n"
        "guard = pickle.load(sys.stdin.buffer)\n"
        "print(guard.name, guard.seconds, type(guard).__mro__[1].__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=sent, capture_output=True, check=True
    )
    assert done.stdout.decode().split() == ["hyperplane-lease", "30.0", "LeaseGuard"]
