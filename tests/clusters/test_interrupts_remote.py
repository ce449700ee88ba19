"""Ctrl-C at any line of a start on remote engines leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import asyncssh
import cloudpickle
import pytest
from distributed import Scheduler
from distributed.core import Status
from interrupted_starts import (
    SHORT,
    FakeKubernetesApi,
    GatewayServer,
    HostConnection,
    Lines,
    OpenClient,
    World,
)
from scale import scaled
from subprograms import wait_until

import hyperplane
from hyperplane.clusters import records
from hyperplane.clusters.dask import settings as dask_settings
from hyperplane.clusters.dask import versions, wait_for_workers
from hyperplane.core.errors import StartFailed
from hyperplane.guard import memory_plugins
from hyperplane.guard.preflight.environment import EnvironmentRequest, describe_here

ONE: dict[str, Any] = {
    "num_workers": 2,
    "nprocs": 1,
    "nthreads": 1,
    "cores_per_worker": 1,
    "ram_gb_per_proc": 0.5,
    "name": "interrupted",
}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    found = World()
    monkeypatch.setattr(wait_for_workers, "Client", partial(OpenClient, world=found))
    monkeypatch.setattr(versions, "check", lambda *arguments: None)
    yield found
    assert found.begun


def ssh(world: World, patch: pytest.MonkeyPatch) -> hyperplane.ClusterPlan:
    async def connect(host: str, **options: Any) -> HostConnection:
        await asyncio.sleep(SHORT)
        return HostConnection(world, host)

    patch.setattr(asyncssh, "connect", connect)
    options = {"hosts": ["a", "b"], "security": "none", "interface": "lo"}
    return hyperplane.plan_cluster(
        engine="ssh", engine_options=options, scheduler_deploy_mode="local", **ONE
    )


def slurm(world: World, patch: pytest.MonkeyPatch) -> hyperplane.ClusterPlan:
    from hyperplane.clusters.dask.slurm import cluster as slurm_cluster
    from hyperplane.clusters.dask.slurm import engine as slurm_engine
    from hyperplane.clusters.dask.slurm import preflight as slurm_preflight
    from hyperplane.platforms.slurm import partitions
    from hyperplane.platforms.slurm.commands import CommandResult

    async def submit(script: str) -> str:
        number = world.begin("job").partition(" ")[2]
        await asyncio.sleep(SHORT)
        return number

    async def cancel(numbers: list[str]) -> None:
        world.runs.difference_update(f"job {number}" for number in numbers)

    async def ask(numbers: list[str]) -> dict[str, Any]:
        return {}

    async def run(words: list[str], **options: Any) -> CommandResult:
        name = world.begin("process")
        try:
            await asyncio.sleep(SHORT)
        finally:  # it is killed
            world.runs.discard(name)
        output = json.dumps({"environment": vars(describe_here(EnvironmentRequest()))})
        return CommandResult(0, output, "")

    usable = (True, "")
    patch.setattr(slurm_preflight, "run_command_async", run)
    patch.setattr(partitions, "run_command_async", run)
    patch.setattr(slurm_engine.SlurmEngine, "available", lambda engine: usable)
    patch.setattr(slurm_cluster, "submit_script_async", submit)
    patch.setattr(slurm_cluster, "cancel_jobs", cancel)
    patch.setattr(slurm_cluster, "query_jobs_async", ask)
    options = {"interface": "lo", "security": "none", "shared_folder": tempfile.gettempdir() + "/s"}
    return hyperplane.plan_cluster(engine="slurm", engine_options=options, **ONE)


def gateway(world: World, patch: pytest.MonkeyPatch) -> hyperplane.ClusterPlan:
    from hyperplane.clusters.dask.gateway import options as gateway_options
    from hyperplane.clusters.dask.gateway import server
    from hyperplane.clusters.dask.gateway import start as gateway_start

    there = GatewayServer(world)
    patch.setattr(asyncio, "open_connection", there.open_connection)
    patch.setattr(server, "call", there.ask)
    patch.setattr(server, "open_gateway", there.opened)
    patch.setattr(gateway_start, "POLL_INTERVAL", SHORT)
    patch.setattr(gateway_start, "Client", partial(OpenClient, world=world))
    patch.setattr(gateway_start._PendingCluster, "check_sizes", lambda begun, client: None)
    patch.setattr(gateway_options, "fill_options", lambda asked, plan: None)
    patch.setattr(gateway_start, "WatchedGatewayCluster", SimpleNamespace(create=there.cluster_of))
    return hyperplane.plan_cluster(
        engine="gateway", engine_options={"address": there.address}, **ONE
    )


def kubernetes(world: World, patch: pytest.MonkeyPatch) -> hyperplane.ClusterPlan:
    from hyperplane.clusters import custom_resource
    from hyperplane.clusters.dask.kubernetes import engine as kubernetes_engine
    from hyperplane.clusters.dask.kubernetes import preflight as kubernetes_preflight
    from hyperplane.clusters.dask.kubernetes import resource
    from hyperplane.clusters.dask.kubernetes.cluster import HyperplaneKubeCluster

    async def soon(self: Any, *arguments: Any) -> None:
        await asyncio.sleep(SHORT)

    usable = (True, "")
    patch.setattr(kubernetes_engine.KubernetesEngine, "available", lambda engine: usable)
    for module in (custom_resource, kubernetes_preflight):
        patch.setattr(module, "KubernetesApi", lambda namespace, **_: FakeKubernetesApi(world))
    patch.setattr(resource.DaskClusterResource, "wait_for_head", soon)
    patch.setattr(HyperplaneKubeCluster, "_reach_scheduler", soon)
    options = {"image": "registry.example/flights:1", "security": "none"}
    return hyperplane.plan_cluster(engine="kubernetes", engine_options=options, **ONE)


def left() -> list[str]:
    """Everything that this process holds for clusters."""
    names = [thread.name for thread in threading.enumerate()]
    threads = [name for name in names if "IO loop" in name or "preflight" in name]
    schedulers = [each for each in Scheduler._instances if each.status != Status.closed]
    files = map(str, Path(tempfile.gettempdir()).rglob("*"))
    listed = [record.name for record in records.read_all(starting=True)]
    by_value = cloudpickle.list_registry_pickle_by_value()
    return [*threads, *map(str, schedulers), *files, *listed, *dask_settings._applied, *by_value]


@pytest.mark.parametrize("engine", [ssh, slurm, gateway, kubernetes])
def test_ctrl_c_at_any_line_leaves_nothing(
    engine: Callable[[World, pytest.MonkeyPatch], hyperplane.ClusterPlan],
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = engine(world, monkeypatch)
    handler = signal.getsignal(signal.SIGINT)
    for _ in range(2):  # the first start also imports
        whole = Lines()
        with whole.traced():
            client, cluster = hyperplane.start(plan)
        client.close()
        cluster.close()
        assert not world.runs
    before = left()  # Dask's parent of scratch folders is not removed
    for number in range(1, whole.seen, max(1, whole.seen // scaled(8, 60))):
        lines = Lines(number)
        started = None
        with lines.traced(), suppress(KeyboardInterrupt):
            started = hyperplane.start(plan)
        # The number of lines varies with the waits: a start may end before the line.
        assert (started is None) == bool(lines.where)
        if started is not None:
            started.client.close(), started.cluster.close()
        assert (lines.where, world.runs) == (lines.where, set())
        wait_until(lambda: left() == before, 60)  # a thread of the preflight may still end
        assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.parametrize("engine", [ssh, slurm, gateway, kubernetes])
def test_ctrl_c_as_any_operation_begins_leaves_nothing(
    engine: Callable[[World, pytest.MonkeyPatch], hyperplane.ClusterPlan],
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = engine(world, monkeypatch)
    client, cluster = hyperplane.start(plan)
    client.close()
    cluster.close()
    before = left()
    for number in range(1, world.begun + 1):
        world.begun, world.press_at = 0, number
        with pytest.raises(KeyboardInterrupt):
            hyperplane.start(plan)
        assert (number, world.runs, left()) == (number, set(), before)


@pytest.mark.parametrize("engine", [gateway, kubernetes])
def test_ctrl_c_while_plugins_are_added_waits_for_them(
    engine: Callable[[World, pytest.MonkeyPatch], hyperplane.ClusterPlan],
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = engine(world, monkeypatch)
    added = []

    def register(client: Any, layout: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        added.append(layout)

    monkeypatch.setattr(memory_plugins, "register", register)
    with pytest.raises(KeyboardInterrupt):
        hyperplane.start(plan)
    assert len(added) == 1
    assert not world.runs


@pytest.mark.parametrize("answers", [0, 1, 2, 3])
def test_a_node_that_is_closed_during_its_start_stays_closed(world: World, answers: int) -> None:
    from hyperplane.clusters.dask.ssh.nodes import HostServer

    async def close_in_start() -> tuple[Status, set[str]]:
        connection = HostConnection(world, "a")
        connections: Any = SimpleNamespace(connection=AsyncMock(return_value=connection))
        node = HostServer(connections, "a", "python", 10.0, 0.0, {"role": "worker"}, [])
        starting = asyncio.ensure_future(node)
        # So many answers of the host come before; without one its start waits for the first.
        await asyncio.sleep(SHORT * (answers + 0.5))
        await node.close()
        await asyncio.wait([starting])
        assert starting.exception() is None or isinstance(starting.exception(), StartFailed)
        return node.status, world.runs - {connection.name}

    assert asyncio.run(close_in_start()) == (Status.closed, set())


@pytest.mark.parametrize("taken", [False, True])
def test_an_interrupted_start_may_delete_only_a_cluster_that_it_created(taken: bool) -> None:
    from hyperplane.clusters.dask.kubernetes.resource import DaskClusterResource
    from hyperplane.platforms.kubernetes.errors import CONFLICT, RequestRefused

    async def create(kind: str, content: Any, version: str) -> Any:
        await asyncio.sleep(10 * SHORT)
        if taken:
            raise RequestRefused("the name is already in use", CONFLICT)
        return {}

    async def interrupted() -> DaskClusterResource:
        resource = DaskClusterResource("interrupted", "lab")
        resource.api = SimpleNamespace(create=create)  # type: ignore[assignment]
        creating = asyncio.ensure_future(resource.create({}, {}))
        await asyncio.sleep(SHORT)
        creating.cancel()
        await asyncio.wait([creating])
        assert creating.cancelled() or creating.exception() is not None
        return resource

    # If the name is taken, the cluster belongs to another program.
    assert asyncio.run(interrupted()).may_delete is not taken


def ssh_without_connections(world: World, patch: pytest.MonkeyPatch) -> hyperplane.ClusterPlan:
    from hyperplane.clusters.dask.ssh import start as ssh_start
    from hyperplane.platforms.ssh.hosts import SshConnections

    plan = ssh(world, patch)
    patch.setattr(SshConnections, "open", never)
    patch.setattr(ssh_start, "_REPORT_SECONDS", 0.0)
    return plan


def slurm_without_answers(world: World, patch: pytest.MonkeyPatch) -> hyperplane.ClusterPlan:
    from hyperplane.clusters.dask.slurm import cluster as slurm_cluster

    plan = slurm(world, patch)
    patch.setattr(slurm_cluster, "submit_script_async", never)
    patch.setattr(slurm_cluster.GuardedSLURMCluster, "end_workers_seconds", 0.5)
    return plan


async def never(*arguments: Any) -> Any:
    await asyncio.sleep(10_000)


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        (ssh_without_connections, "the hosts did not connect, or the scheduler did not start"),
        (slurm_without_answers, "0 of 2 jobs submitted"),
    ],
)
def test_a_start_ends_although_its_services_do_not_answer(
    engine: Callable[[World, pytest.MonkeyPatch], hyperplane.ClusterPlan],
    text: str,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(ONE, "timeout", 2)
    plan, before = engine(world, monkeypatch), left()
    # Dask's parent of scratch folders is not removed.
    with pytest.raises(hyperplane.StartTimeout, match=rf"{text} within 2 s \(timeout\)"):
        hyperplane.start(plan)
    assert not world.runs
    assert [each for each in left() if "dask-scratch-space" not in each] == before
