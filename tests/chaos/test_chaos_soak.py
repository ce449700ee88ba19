"""Thousands of small computations: client, scheduler and workers keep nothing of them.

The test counts objects; with ``make chaos`` it also measures memory.
``HYPERPLANE_SOAK_REPORT`` is a file for the figures.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import psutil
import pytest
from chaos_runs import SMALL
from chaos_scale import LONG, chaos_scaled
from scale import FULL

import hyperplane
from hyperplane.core.dask_internals.span_limit import KEPT_SPANS

COMPUTES = chaos_scaled(300, 10_000)
#: Computations after which caches and Dask's logs of limited length are full.
WARM_UP = chaos_scaled(150, 5_000)
#: Computations between two samples.
STEP = chaos_scaled(50, 250)
#: Growth of a process's memory in the second half that counts as none. One step of 4 MB of the
#: allocator, as seen in each process, is 0.8 KB.
MOST_KB_PER_COMPUTE = 2.0


def compute(client: Any, number: int) -> None:
    """Compute something small in one of four ways."""
    if number % 4 == 0:
        assert client.submit(sum, [1, number], pure=False).result() == 1 + number
    elif number % 4 == 1:
        array = da.arange(1000 + number, chunks=300)
        assert int(array.sum().compute()) == (1000 + number) * (999 + number) // 2
    elif number % 4 == 2:
        futures = client.map(pow, range(4), [2] * 4, pure=False)
        assert client.gather(futures) == [0, 1, 4, 9]
    else:
        frame = pd.DataFrame({"key": np.arange(40) % 4, "value": number})
        df = dd.from_pandas(frame, npartitions=2)
        found = hyperplane.dataframe.group_agg(df, "key", {"value": "sum"}).compute()
        assert found.value.to_list() == [10 * number] * 4


def sample(client: Any, cluster: Any) -> dict[str, float]:
    """Return counts of what a computation could leave, and memory in KB."""
    gc.collect()
    scheduler = cluster.scheduler
    own = psutil.Process()
    workers = client.run(measure_worker())
    kinds = Counter(type(each).__name__ for each in gc.get_objects())
    return {
        "tasks of the scheduler": len(scheduler.tasks),
        "task states": kinds["TaskState"],
        "spans over the limit": max(0, len(scheduler.extensions["spans"].spans) - KEPT_SPANS),
        "futures of the client": len(client.futures),
        "shuffles": len(scheduler.plugins["shuffle"].active_shuffles),
        "threads": threading.active_count(),
        "descriptors": own.num_fds(),
        "expressions": sum(count for name, count in kinds.items() if name.endswith("Expr")),
        "tasks of workers": sum(each["tasks"] for each in workers.values()),
        # Removed every few seconds, so there may be more for a moment.
        "counters of workers": max(0, max(each["counters"] for each in workers.values()) - 5000),
        "descriptors of workers": sum(each["descriptors"] for each in workers.values()),
        "threads of workers": sum(each["threads"] for each in workers.values()),
        "KB of client and scheduler": own.memory_info().rss / 1024,
        "KB of a worker": max(each["memory"] for each in workers.values()) / 1024,
    }


def measure_worker() -> Any:
    """Return a function that is pickled by value."""

    def measure(dask_worker: Any) -> dict[str, int]:
        import gc
        import threading

        import psutil

        gc.collect()
        process = psutil.Process()
        return {
            "tasks": len(dask_worker.state.tasks),
            "counters": len(dask_worker.digests_total),
            "descriptors": process.num_fds(),
            "threads": threading.active_count(),
            "memory": process.memory_info().rss,
        }

    return measure


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.skipif(not (FULL or LONG), reason="hundreds of computations: at full scale")
@pytest.mark.timeout(chaos_scaled(600, 7200))
def test_small_computations_leave_nothing() -> None:
    plan = hyperplane.plan_cluster(**{**SMALL, "engine": "local", "nprocs": 2})
    client, cluster = hyperplane.start(plan)
    samples: list[dict[str, float]] = []
    with cluster, client:
        for number in range(1, COMPUTES + 1):
            compute(client, number)
            if number % STEP == 0:
                samples.append(sample(client, cluster))
                if report := os.environ.get("HYPERPLANE_SOAK_REPORT"):
                    Path(report).write_text(json.dumps(samples))
    expected = WARM_UP // STEP
    half = samples[expected:]
    for name in samples[0]:
        values = [each[name] for each in half]
        if not name.startswith("KB"):
            # A task or connection may be on its way out when a sample is taken.
            most = max(samples[expected - 1][name], values[0]) + 2
            assert min(values[-2:]) <= most, (name, values)
        elif LONG:
            slope = statistics.linear_regression(range(len(values)), values).slope / STEP
            assert slope <= MOST_KB_PER_COMPUTE, (name, slope, values)
