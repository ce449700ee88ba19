"""Plugins that schedulers without this package receive by value."""

from __future__ import annotations

import subprocess
import sys

import cloudpickle
import pytest

from hyperplane.clusters.dask.gateway import plugins
from hyperplane.core.by_value import find_own_imports, pickled_by_value
from hyperplane.guard import block_usage
from hyperplane.guard.block_usage import BlockMonitor
from hyperplane.guard.budget import BudgetMeter
from hyperplane.guard.usage import UsageMonitor

#: A scheduler without this package that measures, and returns the figures through its handler.
PROGRAM = """
import asyncio, json, pickle, sys
sys.modules["hyperplane"] = None  # importing it fails
from distributed import Client, Scheduler, Worker

async def run():
    monitor, guard, block = pickle.loads(sys.stdin.buffer.read())
    async with Scheduler(dashboard_address="127.0.0.1:0", host="127.0.0.1") as scheduler:
        async with Worker(scheduler.address, name="w", nthreads=1, memory_limit=10**9):
            async with Client(scheduler.address, asynchronous=True) as client:
                await client.register_plugin(monitor)
                await client.register_plugin(guard)
                await client.submit(sum, [1, 2], key="add-1")
                await client.register_plugin(block)
                await client.submit(sum, [1, 2], key="block-1")
                usage = await client.scheduler.hyperplane_usage()
                print(json.dumps({**usage, "budget": sorted(scheduler.plugins)}))
                measured = await getattr(client.scheduler, block.handler)()
                print("block", [task["name"] for task in measured["tasks"]])
                print("left", block.name in scheduler.plugins)

asyncio.run(run())
"""


@pytest.mark.slow
@pytest.mark.cluster
def test_a_scheduler_without_the_package_measures_and_counts() -> None:
    import hyperplane.collections.frames.kernels.polars_kernel  # noqa: F401 - it registers functions

    with plugins.pickled_by_value():
        meter = BudgetMeter(5, "core-hours", None)
        guard = plugins.GatewayBudgetGuard(meter)
    with plugins.pickled_by_value(), pickled_by_value(*find_own_imports(block_usage)):
        sent = cloudpickle.dumps((UsageMonitor(0.7), guard, BlockMonitor("id", "client")))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=sent,
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    text = done.stdout.decode()
    assert '"name": "w"' in text
    assert '"name": "add", "count": 1' in text
    assert "hyperplane-budget-guard" in text
    assert "block ['block']" in text
    assert "left False" in text
