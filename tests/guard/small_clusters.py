"""Local clusters of one small node, for tests of the guards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from distributed import Client

import hyperplane

#: Seconds for what takes a few seconds on an idle machine.
SOON = 150.0
#: Memory of a worker process in bytes.
LIMIT = 500_000_000
_ARGUMENTS: dict[str, Any] = {
    "num_workers": 1,
    "nprocs": 2,
    "nthreads": 1,
    "ram_gb_per_proc": LIMIT / 1e9,
    "cores_per_worker": 4,
    "local_fit": "exact",
    "engine_options": {"oom_free_memory": 0},
}


@contextmanager
def started(**arguments: Any) -> Iterator[tuple[Client, Any]]:
    """Client and cluster of a node of two worker processes with one thread each, unless changed.

    Their limits do not grow, unless ``engine_options`` are given.
    """
    client, cluster = hyperplane.start(hyperplane.plan_cluster(**{**_ARGUMENTS, **arguments}))
    with ExitStack() as stack:
        stack.callback(cluster.close)
        stack.callback(client.close)
        yield client, cluster
