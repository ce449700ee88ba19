"""Clusters of a gateway in the pane: a real server, and the manager of dask-labextension."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import dask.config
import pytest
from lab_server import LIMIT, need_labextension
from services import until
from services_gateway import SMALL, Server, gateway, nothing_left, surroundings

import hyperplane
from hyperplane.lab import pane
from hyperplane.lab.pane import ClusterPane

pytestmark = [pytest.mark.engine, pytest.mark.slow]
__all__ = ["gateway", "nothing_left", "surroundings"]  # fixtures

FACTORY = {"module": "hyperplane.lab", "class": "start_cluster", "args": [], "kwargs": {}}


async def update_until(shown: ClusterPane, holds: Callable[[], object]) -> None:
    """Update the pane until a condition holds."""
    async with asyncio.timeout(LIMIT):
        while not holds():
            await shown.update()
            await asyncio.gather(*shown._tasks)
            await asyncio.sleep(0.1)


def start(name: str) -> Any:
    plan = hyperplane.plan_cluster(engine="gateway", **{**SMALL, "nprocs": 1}, name=name)
    return hyperplane.start(plan)


def test_clusters_of_a_gateway_are_listed_scaled_and_stopped(
    gateway: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_labextension()
    monkeypatch.setattr(pane, "LISTING_SECONDS", 0.5)
    client, cluster = start("flights")
    with cluster, client, dask.config.set({"labextension.factory": FACTORY}):

        async def use() -> None:
            from dask_labextension.manager import DaskClusterManager

            manager = DaskClusterManager()
            shown = ClusterPane(manager, logging.getLogger("tests.lab"))

            def find() -> dict[str, Any]:
                return {each["name"]: each for each in manager.list_clusters()}

            await update_until(shown, lambda: find().get("flights", {}).get("workers") == 1)
            model = find()["flights"]
            assert model["scheduler_address"] == cluster.scheduler_address
            assert model["dashboard_link"] == cluster.dashboard_link
            assert (model["cores"], model["memory"]) == (1, "476.84 MiB")
            await manager.scale_cluster(model["id"], 2)
            await update_until(shown, lambda: find()["flights"]["workers"] == 2)
            assert len(client.nthreads()) == 2
            assert list(find()) == ["flights"], "it is listed once, also by the gateway"
            # One that this machine has no record of.
            name = cluster.gateway.new_cluster(shutdown_on_close=False).name
            await update_until(shown, lambda: name in find())
            await manager.close_cluster(find()[name]["id"])
            await manager.close_cluster(model["id"])
            assert find() == {}
            await update_until(shown, lambda: cluster.status.name == "closed")
            await shown.update()
            assert find() == {}

        asyncio.run(use())
    until(lambda: not gateway.processes())
