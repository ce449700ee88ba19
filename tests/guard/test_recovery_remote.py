"""The plugins work in schedulers, nannies and workers that have not this package."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client
from scale import FULL, scaled
from subprograms import wait_until

from hyperplane.clusters.dask import recovery
from hyperplane.clusters.dask.recovery import RecoverySettings
from hyperplane.errors import ClusterStalled, WorkerOutOfMemory
from hyperplane.guard import memory_plugins
from hyperplane.guard.memory_advice import WorkerLayout

pytestmark = pytest.mark.cluster

SOON = 240.0
PROGRAM = """
import asyncio, sys
sys.modules["hyperplane"] = None  # cannot be imported
from contextlib import AsyncExitStack
from distributed import Nanny, Scheduler

async def main():
    local = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    small = {"nthreads": 1, "memory_limit": 500_000_000}
    async with Scheduler(port=0, **local) as scheduler:
        async with AsyncExitStack() as stack:
            for _ in range(int(sys.argv[1])):
                await stack.enter_async_context(Nanny(scheduler.address, **small, **local))
            print(scheduler.address, flush=True)
            await asyncio.to_thread(sys.stdin.read)

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with subprocess.Popen(
        [sys.executable, str(program), str(scaled(1, 2))],  # each starts an interpreter
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with Client(process.stdout.readline().strip()) as found:
                yield found
        finally:
            process.stdin.close()
            process.wait(SOON)


def register(client: Client, settings: RecoverySettings) -> None:
    recovery.register(client, settings)
    memory_plugins.register(client, WorkerLayout())


@pytest.mark.slow
def test_a_stalled_cluster_ends_the_tasks(client: Client) -> None:
    def keep() -> None:
        import builtins

        import psutil

        builtins.kept = bytearray(  # type: ignore[attr-defined]
            int(430e6) - psutil.Process().memory_info().rss
        )

    register(client, RecoverySettings(stall_timeout=1, oom="raise"))
    client.run(keep)

    def statuses() -> set[str]:
        return {
            each["status"]
            for each in client.sync(client.scheduler.identity, n_workers=-1)["workers"].values()
        }

    wait_until(lambda: statuses() == {"paused"}, SOON)
    with pytest.raises(ClusterStalled, match="their memory is full"):
        client.submit(int, pure=False).result(SOON)


@pytest.mark.skipif(not FULL, reason="needs a quiet machine: at full scale")
def test_a_task_gets_the_memory_of_its_node(client: Client) -> None:
    def fill(size: float, limit: int) -> int:
        import time

        import psutil
        from distributed import get_worker

        kept = bytearray(int(size) - psutil.Process().memory_info().rss)
        kept[::4096] = b"1" * len(kept[::4096])
        while get_worker().memory_manager.memory_limit == limit:
            time.sleep(0.05)  # until it is ended: a check of the nanny may be late
        return len(kept)

    register(client, RecoverySettings(stall_timeout=20, oom="retry", lends=True))
    limit = 500_000_000
    assert client.submit(fill, 750e6, limit, pure=False).result(SOON) > 0
    with pytest.raises(WorkerOutOfMemory):
        client.submit(fill, 3e9, limit, pure=False).result(SOON)
