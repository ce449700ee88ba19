"""Dask's configuration is restored in whatever order clients and clusters close."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import dask.config
import pytest
from distributed import Client, LocalCluster
from distributed.client import _get_global_client
from hypothesis import given
from hypothesis import strategies as st
from scale import scaled

import hyperplane
from hyperplane import notebook_common as nc
from hyperplane.clusters.dask.default_clients import restore_config_after
from hyperplane.clusters.dask.settings import snapshot

ONE: dict[str, Any] = {
    "num_workers": 1,
    "nprocs": 1,
    "nthreads": 1,
    "ram_gb_per_proc": 0.5,
    "scheduler_deploy_mode": "local",
}
CLOSINGS = ("client", "cluster", "found", "found.cluster")
ORDERS = list(itertools.permutations(CLOSINGS))


@pytest.fixture
def before() -> dict[str, Any]:
    import dask.dataframe  # noqa: F401 - a start imports it, and it brings defaults

    assert _get_global_client() is None
    return snapshot()


def _start() -> tuple[Client, Any]:
    return hyperplane.start(hyperplane.plan_cluster(**ONE))


@pytest.mark.cluster
@pytest.mark.parametrize("order", ORDERS[:: scaled(10, 1)], ids="-".join)
def test_a_second_client_of_the_same_process(before: dict[str, Any], order: tuple[str]) -> None:
    client, cluster = _start()
    found = nc.get_dask_cluster(cluster.name)
    assert dask.config.get("scheduler") == "dask.distributed"
    closings: dict[str, Callable[[], object]] = {
        "client": client.close,
        "cluster": cluster.close,
        "found": found.close,
        "found.cluster": found.cluster.close,
    }
    for name in order:
        closings[name]()
    assert snapshot() == before


@pytest.mark.cluster
def test_a_client_whose_connection_has_failed_closes_without_an_error(
    before: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Tornado raises a ValueError if a scheduler that ends closes a new TLS connection at once."""

    async def fail(self: Client) -> None:
        raise ValueError("IOStream is not idle; cannot convert to SSL")

    async def lose_connection(client: Client) -> None:
        client.scheduler_comm.comm.abort()
        while not client._handle_report_task.done():
            await asyncio.sleep(0.01)

    client, cluster = _start()
    monkeypatch.setattr(Client, "_reconnect", fail)
    client.sync(lose_connection, client)
    assert "not idle" in caplog.text  # Dask has logged it
    client.close()
    cluster.close()
    assert client.status == "closed"
    assert snapshot() == before


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("how", "own"),
    [("shutdown", None), ("with", "threads"), ("closed in with", None), ("last name", "threads")],
)
def test_every_way_to_close_restores_the_configuration(
    before: dict[str, Any], how: str, own: str | None
) -> None:
    with dask.config.set({"scheduler": own} if own else {}):
        first, cluster = _start()
        second, other = hyperplane.get_cluster(cluster.name)
        if how == "shutdown":
            first.shutdown()
            second.close()
        elif how == "with":
            with first, cluster:
                pass
            with other, second:
                pass
        elif how == "closed in with":
            with first:
                first.close()
            with second, other:
                other.close()
            cluster.close()
        else:
            cluster.close()
            other.close()
            del first, second
            gc.collect()
            for client in list(Client._instances):
                client.close()
        assert dask.config.get("scheduler", None) == own
    assert snapshot() == before


@pytest.fixture(scope="module")
def plain() -> Iterator[LocalCluster]:
    """A cluster of plain Dask, with clients of Dask and of hyperplane."""
    with LocalCluster(
        n_workers=0,
        processes=False,
        dashboard_address="127.0.0.1:0",
        scheduler_kwargs={"dashboard": False},
    ) as cluster:
        yield cluster


@pytest.mark.cluster
@given(
    kinds=st.lists(st.booleans(), min_size=1, max_size=4),
    seeds=st.lists(st.integers(0, 99), min_size=5, max_size=5),
)
def test_clients_of_dask_among_ours(
    plain: LocalCluster, kinds: list[bool], seeds: list[int]
) -> None:
    assert "scheduler" not in dask.config.config
    clients = []
    for ours in [*kinds, True]:
        client = Client(plain)
        if ours:
            restore_config_after(client)
        clients.append(client)
    for _, client in sorted(zip(seeds, clients, strict=False), key=lambda pair: pair[0]):
        assert dask.config.get("scheduler") == "dask.distributed"
        client.close()
    assert "scheduler" not in dask.config.config


def test_a_client_of_dask_that_opens_last_and_closes_last(plain: LocalCluster) -> None:
    ours = Client(plain)
    restore_config_after(ours)
    theirs = Client(plain)
    ours.close()
    theirs.close()
    assert "scheduler" not in dask.config.config


def test_a_client_of_dask_that_closes_last_within_ours(plain: LocalCluster) -> None:
    """The client is also closed when the cluster of both is closed within the block."""
    ours = Client(plain)
    restore_config_after(ours)
    with ours:
        theirs = Client(plain)
        ours.close()
        theirs.close()
        assert "scheduler" not in dask.config.config


@pytest.mark.parametrize("how", ["with", "as_current"])
def test_clients_that_close_while_one_is_current(plain: LocalCluster, how: str) -> None:
    first = Client(plain)
    restore_config_after(first)
    with first if how == "with" else first.as_current():
        second = Client(plain)
        restore_config_after(second)
        first.close()
        assert dask.config.get("scheduler") == "dask.distributed"
        second.close()
        assert "scheduler" not in dask.config.config
    if how == "as_current":  # restores at its end the configuration of its start
        assert dask.config.config.pop("scheduler") == "dask.distributed"
