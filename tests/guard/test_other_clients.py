"""Other clients of a cluster: their calls end with the errors of the client that started it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from distributed import Client
from small_clusters import SOON, started
from subprograms import wait_until

from hyperplane.errors import ClusterStalled, WorkerOutOfMemory

pytestmark = pytest.mark.cluster

#: Program with a separate client: how each of its calls ends, as JSON.
PROGRAM = """
import json, sys, numpy
from distributed import Client, as_completed

def describe(call):
    try:
        return ["answer", str(call())]
    except Exception as error:
        kinds = [kind.__name__ for kind in type(error).__mro__]
        return [kinds[0], str(error), "KilledWorker" in kinds, "MemoryError" in kinds]

def allocate(megabytes):
    return len(numpy.ones(megabytes * 125_000))

with Client(sys.argv[1]) as client:
    future = client.submit(allocate, 1500, pure=False)
    found = {"result": describe(lambda: future.result(100))}
    found["gather"] = describe(lambda: client.gather([future]))
    found["as_completed"] = describe(
        lambda: list(as_completed([future], with_results=True, timeout=100))
    )
    found["usable"] = describe(lambda: client.submit(int, pure=False).result(100))
print(json.dumps(found))
"""


def allocator() -> Callable[[int], int]:
    def allocate(megabytes: int) -> int:
        import numpy as np

        return len(np.ones(megabytes * 125_000))

    return allocate


@pytest.mark.slow
def test_a_client_of_another_process_gets_the_explanation() -> None:
    with started(oom="raise") as (_, cluster):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, cluster.scheduler_address],
            capture_output=True,
            text=True,
            timeout=SOON,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["usable"] == ["answer", "0"]
    for call in ("result", "gather", "as_completed"):
        name, text, *kinds = found[call]
        assert (name, kinds) == ("WorkerOutOfMemory", [True, True]), call
        assert "Fix: " in text


@pytest.mark.slow
def test_a_second_client_of_the_process_and_clients_of_tasks_get_the_explanation() -> None:
    allocate = allocator()

    def submit_from_task(megabytes: int) -> Any:
        from distributed import get_client, worker_client

        first = get_client().submit(allocate, 1, pure=False)
        with worker_client() as client:
            return client.gather([first, client.submit(allocate, megabytes, pure=False)])

    with started(oom="raise") as (client, cluster), Client(cluster, set_as_default=False) as second:
        for one in (second, client):
            with pytest.raises(WorkerOutOfMemory, match="Fix: "):
                one.submit(allocate, 1500, pure=False).result(SOON)
            with pytest.raises(WorkerOutOfMemory, match="Fix: "):
                one.submit(submit_from_task, 1500, pure=False).result(SOON)


@pytest.mark.slow
def test_all_clients_of_a_stalled_cluster_get_its_error() -> None:
    def keep(number: int) -> int:
        import builtins

        import psutil

        size = int(430e6) - psutil.Process().memory_info().rss
        builtins.kept = bytearray(size)  # type: ignore[attr-defined]
        return number

    errors: list[BaseException | None] = []

    def wait(client: Client) -> None:
        try:
            client.submit(int, pure=False).result(SOON)
            errors.append(None)
        except Exception as error:  # noqa: BLE001 - the outcome
            errors.append(error)

    with (
        started(oom="raise", stall_timeout=1) as (client, cluster),
        Client(cluster.scheduler_address, set_as_default=False) as second,
    ):
        for number, worker in enumerate(client.nthreads()):
            second.submit(keep, number, workers=[worker], pure=False).result(SOON)
        wait_until(lambda: not cluster.scheduler.running, SOON)
        threads = [threading.Thread(target=wait, args=(each,)) for each in (client, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SOON)
    assert [type(each) for each in errors] == [ClusterStalled, ClusterStalled], errors
