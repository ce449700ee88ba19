"""A pytest plugin: tests of Dask's own run on a cluster of this package.

Used by :mod:`run_suites` in a separate process, with ``-p on_cluster``. Its environment variables:
``COMPAT_CLUSTER`` (``hyperplane`` or ``plain``), ``COMPAT_EVERY`` (n: run each n-th test) and
``COMPAT_REPORT`` (the file for the results).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster

# First, because Dask's test utilities put the configuration of their import back for each test.
import hyperplane.cluster

# isort: split
# The fixtures of Dask's client tests; only `cluster_fixture` below is another one here.
from distributed.utils_test import (  # noqa: F401
    a,
    b,
    c,
    cleanup,
    client,
    client_no_amm,
    client_secondary,
    loop,
    loop_in_thread,
    s,
)

#: Fixtures with which a test of Dask gets its cluster from the suite.
FROM_SUITE = {"client", "c", "s", "a", "b", "client_no_amm", "client_secondary", "cluster_fixture"}
EXCLUDED = Path(__file__).with_name("excluded.txt")
#: Names of Dask's schedulers that run in the process of the caller.
NAMES = ("sync", "synchronous", "single-threaded", "threads", "threading")

_results: dict[str, str] = {}


def start() -> tuple[Client, Any]:
    """Start the kind of cluster that is asked for, with two processes of one thread."""
    if os.environ["COMPAT_CLUSTER"] == "plain":
        cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0")
        return Client(cluster), cluster
    # The tuning profile is the one in force by default, `fast`.
    return hyperplane.cluster.initialize_cluster(
        num_workers=1, nprocs=2, nthreads=1, ram_gb_per_proc=1.0, local_fit="exact"
    )


def excluded() -> dict[str, str]:
    """Part of a test's name -> why tests with it are left out."""
    found = {}
    for line in EXCLUDED.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, reason = line.partition(" ")
            found[name] = reason.strip()
    return found


def _of_client_suite(item: pytest.Item) -> bool:
    return item.path.name == "test_client.py"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what builds its own cluster, what is excluded, and all but each n-th test."""
    every = int(os.environ["COMPAT_EVERY"])
    reasons = excluded()
    chosen = []
    for number, item in enumerate(items):
        name = item.nodeid.partition("/tests/")[2] or item.nodeid
        if _of_client_suite(item) and not FROM_SUITE & set(getattr(item, "fixturenames", ())):
            _results[item.nodeid] = "own cluster"
        elif reason := next((why for part, why in reasons.items() if part in name), None):
            _results[item.nodeid] = f"excluded: {reason}"
        elif marks := {"network", "gpu", "slow"} & {mark.name for mark in item.iter_markers()}:
            _results[item.nodeid] = f"excluded: marked by Dask as {min(marks)}"
        elif number % every == 0:
            chosen.append(item)
    kept = set(chosen)
    left_out = [item for item in items if item not in kept]
    config.hook.pytest_deselected(items=left_out)
    items[:] = chosen


@pytest.fixture
def cluster_fixture(loop: Any) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:  # noqa: F811
    """A cluster of the kind asked for, in the form of Dask's fixture of that name."""
    del loop
    own, cluster = start()
    workers = [{"address": address} for address in own.scheduler_info()["workers"]]
    own.close()
    yield {"address": cluster.scheduler_address}, workers
    cluster.close()


@pytest.fixture(scope="session")
def session_cluster() -> Iterator[Client]:
    """One cluster for all tests of collections."""
    own, cluster = start()
    yield own
    own.close()
    cluster.close()


@pytest.fixture(autouse=True)
def collections_on_cluster(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have a test of collections compute on the cluster, whichever scheduler it names."""
    if _of_client_suite(request.node):
        yield
        return
    own = request.getfixturevalue("session_cluster")
    before = dict(dask.base.named_schedulers)
    dask.base.named_schedulers.update(dict.fromkeys(NAMES, own.get))
    with dask.config.set(scheduler="dask.distributed"):
        yield
    dask.base.named_schedulers.clear()
    dask.base.named_schedulers.update(before)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the outcome of a test."""
    if report.when == "call" or report.outcome != "passed":
        expected = hasattr(report, "wasxfail")
        _results[report.nodeid] = "expected to fail" if expected else report.outcome


def pytest_sessionfinish() -> None:
    """Write all outcomes."""
    Path(os.environ["COMPAT_REPORT"]).write_text(json.dumps(_results), encoding="utf-8")
