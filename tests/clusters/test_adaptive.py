"""Adaptive clusters: their plans, and local ones that follow the work."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import dask.config
import pytest
from distributed.client import FutureCancelledError
from distributed.deploy.adaptive import Adaptive
from subprograms import SOON, wait_until

import hyperplane
from hyperplane.clusters import records
from hyperplane.clusters.dask.adaptive import (
    NodeAdaptive,
    begin_adapting,
    begin_remote_adapting,
)
from hyperplane.clusters.dask.budget_meter import new_budget_meter

SMALL: dict[str, Any] = {
    "nprocs": 2,
    "nthreads": 1,
    "ram_gb_per_proc": 0.3,
    "cores_per_worker": 2,
    "local_fit": "exact",
}


def test_a_plan_has_both_numbers() -> None:
    plan = hyperplane.plan_cluster(num_workers=(2, 10), engine="local", **SMALL)
    assert (plan.nodes, plan.max_nodes, plan.dask_workers) == (2, 10, 4)
    rows = dict(plan.rows())
    assert rows["asked"].startswith("2 to 10 nodes, each 2 processes")
    assert rows["given"].startswith("2 to 10 nodes, each 2 processes")
    assert rows["total"] == "4 worker processes, 4 threads, 1.2 GB at the start"
    assert plan.to_dict()["max_nodes"] == 10


def test_a_fixed_plan_has_no_maximum() -> None:
    plan = hyperplane.plan_cluster(num_workers=(2, 2), engine="local", **SMALL)
    assert (plan.nodes, plan.max_nodes) == (2, None)
    assert "max_nodes" not in plan.to_dict()


def test_a_machine_that_is_too_small_for_the_maximum_has_a_fixed_cluster() -> None:
    arguments = {**SMALL, "local_fit": "fit", "ram_gb_per_proc": 50}
    plan = hyperplane.plan_cluster(num_workers=(2, 1000), engine="local", **arguments)
    assert (plan.nodes, plan.max_nodes) == (1, None)
    assert "asked 1000 nodes" in plan.fit_note


def test_hosts_are_checked_for_the_maximum() -> None:
    with pytest.raises(
        hyperplane.RequestError, match=r"num_workers = \(1, 3\): expected at most 2"
    ):
        hyperplane.plan_cluster(
            num_workers=(1, 3), engine="ssh", engine_options={"hosts": ["a", "b"]}, **SMALL
        )


def test_engines_without_the_feature_refuse_it_with_those_that_have_it() -> None:
    with pytest.raises(hyperplane.RequestError) as caught:
        hyperplane.plan_cluster(
            num_workers=(1, 3), budget=5, nprocs=1, nthreads=1, engine="ray:local"
        )
    assert {fault.where for fault in caught.value.faults} == {"num_workers", "budget"}
    assert "engine ray:local has no adaptive clusters" in str(caught.value)


def test_money_needs_a_price() -> None:
    with pytest.raises(hyperplane.RequestError, match="pool 8_8 has no price"):
        hyperplane.plan_cluster(num_workers=1, pool="8_8", budget="5 USD", engine="local")
    with dask.config.set({"hyperplane.pools.pool_8_8.price_per_hour": 0.3}):
        plan = hyperplane.plan_cluster(
            num_workers=1, pool="8_8", budget="5 USD", engine="local", local_fit="exact"
        )
    meter = new_budget_meter(plan)
    assert meter is not None
    assert (meter.limit, meter.unit) == (5, "USD")
    assert meter.price == pytest.approx(0.3 / plan.worker.nprocs)
    assert dict(plan.rows())["budget"] == "5 USD"


def test_money_is_compared_with_the_currency_of_the_prices() -> None:
    def plan(budget: str) -> Any:
        return hyperplane.plan_cluster(
            num_workers=1, pool="8_8", budget=budget, engine="local", local_fit="exact"
        )

    with dask.config.set({"hyperplane.pools.pool_8_8.price_per_hour": 0.3}):
        with pytest.raises(hyperplane.RequestError, match=r"'5 EUR': .*an amount in USD"):
            plan("5 EUR")
        with dask.config.set({"hyperplane.sizing.currency": "EUR"}):
            assert plan("5 eur").request.budget.currency == "EUR"
            with pytest.raises(hyperplane.RequestError, match="an amount in EUR"):
                plan("5 USD")
        with (
            dask.config.set({"hyperplane.sizing.currency": "euros"}),
            pytest.raises(hyperplane.ConfigError, match=r"sizing\.currency"),
        ):
            plan("5 EUR")


def test_core_hours_need_no_price() -> None:
    plan = hyperplane.plan_cluster(budget=2, engine="local", **SMALL)
    meter = new_budget_meter(plan)
    assert meter is not None
    assert (meter.limit, meter.unit, meter.price) == (2, "core-hours", None)
    assert new_budget_meter(hyperplane.plan_cluster(engine="local", **SMALL)) is None


class AdaptedCluster:
    """A cluster that records how it is to adapt."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}

    def adapt(self, **options: Any) -> None:
        self.options = options


def test_limits_are_whole_nodes() -> None:
    plan = hyperplane.plan_cluster(num_workers=(2, 10), engine="local", **SMALL)
    ours, remote, fixed = AdaptedCluster(), AdaptedCluster(), AdaptedCluster()
    begin_adapting(ours, plan)
    begin_remote_adapting(remote, plan)
    begin_adapting(fixed, hyperplane.plan_cluster(num_workers=2, engine="local", **SMALL))
    assert ours.options == {
        "Adaptive": NodeAdaptive,
        "processes": 2,
        "minimum": 4,
        "maximum": 20,
    }
    assert remote.options == {"minimum": 4, "maximum": 20}
    assert fixed.options == {}


def test_the_target_is_rounded_up_to_whole_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def target(self: Any) -> int:
        return 7

    monkeypatch.setattr(Adaptive, "target", target)
    nodes = NodeAdaptive(processes=3, minimum=0, maximum=10)
    assert asyncio.run(nodes.target()) == 9


class NodeCluster:
    """A cluster of nodes of two processes, of which some are connected.

    Parameters
    ----------
    nodes, connected : str
        Names of the nodes, and of the connected processes.
    """

    def __init__(self, nodes: str, connected: str) -> None:
        self.worker_spec = {name: {"group": ["-0", "-1"]} for name in nodes.split()}
        self.plan = {f"{name}-{number}" for name in nodes.split() for number in (0, 1)}
        self.requested, self.observed = self.plan, set(connected.split())


@pytest.mark.parametrize(
    ("connected", "idle", "target", "expected"),
    [
        ("a-0 b-0 b-1 c-0 c-1", "b-0 b-1", 4, "b-0 b-1"),  # a-1 restarts: not the first to end
        ("a-0 b-0 b-1 c-0 c-1", "", 4, ""),
        ("a-0 b-0 c-0 c-1", "", 4, ""),  # two nodes whose second process is not there yet
        ("a-0 b-0 b-1 c-0 c-1", "a-0", 4, "a-0 a-1"),
        ("b-0 b-1 c-0 c-1", "", 4, "a-0 a-1"),  # a whole node that has not arrived
        ("c-0 c-1", "", 5, ""),
        ("c-0 c-1", "", 2, "a-0 a-1 b-0 b-1"),
        ("b-0 c-0 c-1", "b-0 c-0 c-1", 2, "a-0 a-1 b-0 b-1"),
        ("a-0 a-1 b-0 b-1 c-0 c-1", "c-0 c-1 b-0 b-1", 4, "c-0 c-1"),
        ("a-0 b-0 b-1 c-0 c-1", "", 6, ""),
    ],
)
def test_only_whole_nodes_are_ended(
    connected: str, idle: str, target: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def workers_to_close(self: Any, target: int) -> list[str]:
        return idle.split()

    monkeypatch.setattr(Adaptive, "workers_to_close", workers_to_close)
    cluster = NodeCluster("a b c", connected)
    nodes = NodeAdaptive(cluster, processes=2, minimum=2, maximum=6, interval="0s", wait_count=2)
    assert asyncio.run(nodes.recommendations(target)) == {"status": "same"}, "not at once"
    found = asyncio.run(nodes.recommendations(target))
    assert " ".join(sorted(found.get("workers", ()))) == expected
    assert found["status"] == ("down" if expected else "same")
    assert asyncio.run(nodes.recommendations(8)) == {"status": "up", "n": 8}


def test_a_record_has_the_largest_sizes_and_the_least_workers() -> None:
    plan = hyperplane.plan_cluster(num_workers=(2, 10), engine="local", **SMALL)
    record = records.ClusterRecord.from_plan(plan)
    assert (record.min_workers, record.workers, record.threads, record.ram_gb) == (4, 20, 20, 6)


@pytest.mark.slow
@pytest.mark.cluster
def test_a_local_cluster_follows_the_work_by_whole_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wait(number: int) -> int:
        import time

        time.sleep(1)
        return number

    plan = hyperplane.plan_cluster(num_workers=(1, 2), engine="local", **SMALL)
    with dask.config.set({"distributed.adaptive.interval": "200ms"}):
        client, cluster = hyperplane.start(plan)
    try:
        assert len(cluster.scheduler.workers) == 2
        [record] = [each for each in records.read_all() if each.name == plan.name]
        assert (record.min_workers, record.workers) == (2, 4)
        futures = client.map(wait, range(60), pure=False)
        wait_until(lambda: len(cluster.scheduler.workers) == 4, SOON)
        client.cancel(futures)
        wait_until(lambda: len(cluster.scheduler.workers) == 2, SOON)
        wait_until(lambda: len(cluster.workers) == 2, SOON)
    finally:
        cluster.close()
        client.close()


@pytest.mark.slow
@pytest.mark.cluster
def test_a_local_cluster_closes_when_its_budget_is_used_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("hyperplane.guard.budget.NOTICE_SECONDS", 1.0)
    plan = hyperplane.plan_cluster(num_workers=1, budget=0.0005, engine="local", **SMALL)
    client, cluster = hyperplane.start(plan)
    with pytest.raises(FutureCancelledError, match=f"{plan.name} has closed: its budget is used"):
        client.submit(time.sleep, 1000).result(SOON)
    wait_until(lambda: cluster.status.name == "closed", SOON)
    client.close()
    assert "is used up: the cluster closes in 1 s" in caplog.text
    assert cluster.end_reason == "its budget is used up"
