"""A scheduler, nannies, workers and clients without this package explain failures for memory."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from hyperplane.clusters.dask import recovery
from hyperplane.clusters.dask.recovery import RecoverySettings
from hyperplane.guard import memory_plugins
from hyperplane.guard.memory_advice import WorkerLayout

PROGRAM = """
import sys
sys.modules["hyperplane"] = None  # as if it was not installed
import asyncio, json, pickle
from distributed import Client, Nanny, Scheduler

ADDRESS = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}

def allocate_much():
    import numpy as np
    return len(np.ones(100_000_000))

def allocate_too_much():
    import numpy as np
    return len(np.ones(10**14))

def compute_in_a_task(function):
    from distributed import get_client
    try:
        get_client().submit(function).result()
    except Exception as error:
        return type(error).__name__, error.__notes__

async def main():
    plugins = [pickle.loads(each) for each in pickle.load(sys.stdin.buffer)]
    facts = {}
    async with Scheduler(**ADDRESS) as scheduler, Client(
        scheduler.address, asynchronous=True
    ) as client:
        nanny_options = {"nthreads": 1, "memory_limit": 400_000_000, **ADDRESS}
        async with Nanny(scheduler.address, **nanny_options) as nanny:
            for plugin in plugins:  # while the nanny and its worker run
                await client.register_plugin(plugin)
            for function in (allocate_much, allocate_too_much):
                try:
                    await client.submit(function)
                except Exception as error:
                    facts[function.__name__] = type(error).__name__, error.__notes__
            facts["in a task"] = await client.submit(compute_in_a_task, allocate_too_much)
    json.dump(facts, sys.stdout)

if __name__ == "__main__":
    asyncio.run(main())
"""


class PicklingClient:
    """Client that pickles the plugins which it gets."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.pickled: list[bytes] = []

    def register_plugin(self, plugin: Any) -> None:
        self.names.append(type(plugin).__name__)
        self.pickled.append(cloudpickle.dumps(plugin))


@pytest.mark.cluster
@pytest.mark.slow
def test_processes_without_the_package_explain_failures_for_memory(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    client: Any = PicklingClient()
    memory_plugins.register(client, WorkerLayout())
    recovery.register(client, RecoverySettings(stall_timeout=600, oom="raise"))
    others = {
        "ActorAnswers",
        "ListMessages",
        "SpanLimit",
        "SpanCounterLimit",
        "ShuffleFolders",
        "ShuffleSizes",
    }
    assert others <= set(client.names)
    done = subprocess.run(
        [sys.executable, str(program)],
        input=pickle.dumps(client.pickled),
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"failed to setup" not in done.stderr
    facts = json.loads(done.stdout)
    name, (note,) = facts["allocate_much"]
    assert name == "KilledWorker"
    assert "(allocate_much) did not fit in the memory of a worker" in note
    assert "tried once" in note
    for case in ("allocate_too_much", "in a task"):
        name, (note,) = facts[case]
        assert name == "KilledWorker"
        assert "refused an allocation of memory" in note
