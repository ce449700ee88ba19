"""Computations that do not fit in the memory of a worker of 0.5 GB, and clusters to run them.

Each has a kind of object and a way to fail. The functions are nested, so that workers receive them
by value.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import dask
from distributed import Client, as_completed, wait

import hyperplane

LIMIT_GB = 0.5
KINDS = ("numpy", "pandas", "arrow", "objects")
#: What happens -> the cause that the error states.
CAUSES = {
    "one large task": "terminate",
    "several together": "terminate",
    "results held": "terminate",
    "killed from outside": "kernel",
    "spill disk full": "spill disk",
}


def make_builder() -> Callable[[str, int], Any]:
    def build(kind: str, megabytes: int) -> Any:
        """Return an object of a kind and size."""
        import os

        import numpy as np

        if kind == "objects":
            return [os.urandom(970) for _ in range(megabytes * 1000)]
        array = np.random.default_rng(0).random(megabytes * 125_000)  # nothing to compress
        if kind == "numpy":
            return array
        if kind == "pandas":
            import pandas as pd

            return pd.DataFrame({"a": array}, copy=False)
        import pyarrow as pa

        return pa.table({"a": pa.array(array)})

    return build


def compute(client: Client, way: str, kind: str) -> None:
    """Run the computation; return when it is complete."""
    build = make_builder()
    if way == "one large task":

        def allocate_large(kind: str) -> int:
            import time

            built = build(kind, 600)
            time.sleep(4)  # a peak shorter than the interval of the nanny's checks ends no process
            return len(built)

        client.submit(allocate_large, kind, pure=False).result(timeout=500)
    elif way == "several together":

        def allocate_part(kind: str, number: int) -> int:
            import time

            part = build(kind, 220)
            time.sleep(4)
            return len(part)

        futures = [client.submit(allocate_part, kind, number, pure=False) for number in range(2)]
        for future in as_completed(futures, timeout=500):
            future.result()
    elif way == "results held":
        # Only the results of the first tasks are held; the last task ends the process.
        held = [client.submit(build, kind, 50, pure=False, key=f"hold-{n}") for n in range(4)]
        wait(held, timeout=500)

        def combine(kind: str, parts: list[Any]) -> int:
            import time

            built = build(kind, 150)
            time.sleep(4)  # as above
            return len(built) + len(parts)

        client.submit(combine, kind, held, pure=False).result(timeout=500)
    elif way == "killed from outside":

        def fill_memory(kind: str) -> int:
            import time

            filled = build(kind, 310)
            time.sleep(8)
            return len(filled)

        with kill_large_workers(client):
            client.submit(fill_memory, kind, pure=False).result(timeout=500)
    else:
        # Small parts: Dask pickles a result before it finds that there is no room for it.
        names = [f"build-{number}" for number in range(32)]
        futures = [client.submit(build, kind, 15, pure=False, key=name) for name in names]
        # Not wait(): it counts results that were lost since. The worker may be ended when it is
        # full, and what builds them again then fails after wait() has returned.
        deadline = time.monotonic() + 500
        while (states := [future.status for future in futures]) != ["finished"] * len(futures):
            if "error" in states:
                futures[states.index("error")].result()
            assert time.monotonic() < deadline, states
            time.sleep(0.05)
        # Tasks that wait on a paused worker are explained, too: these must not come first.
        client.gather([client.submit(len, future) for future in futures])


@contextmanager
def kill_large_workers(client: Client) -> Iterator[None]:
    """Kill workers with much memory during the block, as the kernel of a small machine would."""
    ended = threading.Event()

    def kill() -> None:
        while not ended.wait(0.1):
            for nanny in list(client.cluster.workers.values()):  # type: ignore[union-attr]
                # As its nanny knows it, however late that samples it: otherwise the memory would
                # be no reason for the end.
                reporter = nanny.plugins["hyperplane-memory-reporter"]
                is_large = reporter._samples.find_peak(0) > 0.87 * LIMIT_GB * 1e9
                pid = nanny.pid
                if is_large and pid == reporter._pid and limit_of(client) < 6e8:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def limit_of(client: Client) -> float:
    nannies = client.cluster.workers.values()  # type: ignore[union-attr]
    return min(nanny.memory_manager.memory_limit for nanny in nannies)


@contextmanager
def run_cluster(way: str, **arguments: Any) -> Iterator[Client]:
    """Start a cluster of one worker for a way to fail; arguments are those of a printed fix."""
    settings: dict[str, Any] = {}
    if way == "results held":  # nothing is spilled
        settings = {
            "distributed.worker.memory.target": False,
            "distributed.worker.memory.spill": False,
            "distributed.worker.memory.pause": False,
        }
    elif way == "killed from outside":  # the nanny would end it near its limit
        settings = {"distributed.worker.memory.terminate": False}
    elif way == "spill disk full":
        settings = {"distributed.worker.memory.max-spill": "50MB"}
    if way == "several together":  # a retry would run them one at a time, and they would pass
        arguments = {"oom": "raise", **arguments}
    chosen = {
        "num_workers": 1,
        "nprocs": 1,
        "ram_gb_per_proc": LIMIT_GB,
        "nthreads": 2 if way == "several together" else 1,
        "cores_per_worker": 2,
        "engine_options": {"oom_free_memory": 0},  # the memory of this machine would do
        **arguments,
    }
    with dask.config.set(settings):  # a worker that restarts reads them again
        client, cluster = hyperplane.initialize_cluster(**chosen)
        with cluster, client:
            yield client


def parse_fix(fix: str) -> dict[str, Any]:
    """Return the arguments of the call that a fix prints."""
    found = re.fullmatch(r"initialize_cluster\(\.\.\., (.*)\)", fix)
    assert found is not None, fix
    arguments: dict[str, Any] = eval(f"dict({found[1]})")
    return arguments
