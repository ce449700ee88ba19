"""pytest plugin that runs Dask's own tests on a cluster of this package.

Used by :mod:`run_suites` in a separate process, with ``-p on_cluster``. Its environment variables:
``COMPAT_CLUSTER`` (``hyperplane`` or ``plain``), ``COMPAT_EVERY`` (n: run each n-th test),
``COMPAT_ONLY`` (a file with the names of the tests to run; empty for all) and ``COMPAT_REPORT``
(the file for the results, one line each; tests that it contains do not run again).
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster
from run_suites import read_report

# Imported first: Dask's test utilities restore the configuration of their import for each test.
import hyperplane.cluster

# isort: split
# The fixtures of Dask's client tests; only `cluster_fixture` is replaced below.
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

#: Fixtures with which a test of Dask uses the cluster of the suite.
FROM_SUITE = {"client", "c", "s", "a", "b", "client_no_amm", "client_secondary", "cluster_fixture"}
EXCLUDED = Path(__file__).with_name("excluded.txt")
#: Names of Dask's schedulers on one machine.
NAMES = (
    *("sync", "synchronous", "single-threaded", "threads", "threading"),
    *("processes", "multiprocessing"),
)

_report = Path(os.environ["COMPAT_REPORT"])


def start() -> tuple[Client, Any]:
    """Start a cluster of the requested kind: two processes of one thread and 1 GB."""
    if os.environ["COMPAT_CLUSTER"] == "plain":
        options = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": 10**9}
        cluster = LocalCluster(dashboard_address="127.0.0.1:0", **options)
        return Client(cluster), cluster
    # With the default tuning profile, `fast`.
    return hyperplane.cluster.initialize_cluster(
        num_workers=1, nprocs=2, nthreads=1, ram_gb_per_proc=1.0, local_fit="exact"
    )


def read_excluded() -> dict[str, str]:
    """Return parts of names of excluded tests, with the reasons."""
    reasons = {}
    for line in EXCLUDED.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, reason = line.partition(" ")
            reasons[name] = reason.strip()
    return reasons


def record(name: str, outcome: str) -> None:
    """Append the outcome of a test to the report; the next test may end the process."""
    with _report.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps([name, outcome]) + "\n")


def _of_client_suite(item: pytest.Item) -> bool:
    return item.path.name == "test_client.py"


def _has_own_cluster(item: pytest.Item) -> bool:
    if _of_client_suite(item):
        return not FROM_SUITE & set(getattr(item, "fixturenames", ()))
    # All tests of collections that use `gen_cluster` or start a LocalCluster are in this file; the
    # fixture `cleanup` closes all clients.
    fixtures = getattr(item, "fixturenames", ())
    return item.path.name == "test_distributed.py" or "cleanup" in fixtures


def _excluded_marks(item: pytest.Item) -> set[str]:
    """Return the marks of excluded tests; of slow tests only those of the client run."""
    return {"network", "gpu"} if _of_client_suite(item) else {"network", "gpu", "slow"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests with their own cluster, excluded tests, and all but each n-th test."""
    every, reasons, done = int(os.environ["COMPAT_EVERY"]), read_excluded(), read_report(_report)
    only = set(Path(os.environ["COMPAT_ONLY"]).read_text(encoding="utf-8").splitlines())
    selected = []
    for number, item in enumerate(items):
        if item.nodeid in done or (only and item.nodeid not in only):
            continue
        name = item.nodeid.partition("/tests/")[2] or item.nodeid
        if _has_own_cluster(item):
            record(item.nodeid, "own cluster")
        elif reason := next((why for part, why in reasons.items() if part in name), None):
            record(item.nodeid, f"excluded: {reason}")
        elif marks := _excluded_marks(item) & {mark.name for mark in item.iter_markers()}:
            record(item.nodeid, f"excluded: marked by Dask as {min(marks)}")
        elif number % every == 0 or only:
            selected.append(item)
    in_selection = set(selected)
    deselected = [item for item in items if item not in in_selection]
    config.hook.pytest_deselected(items=deselected)
    items[:] = selected


@pytest.fixture
def cluster_fixture(loop: Any) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:  # noqa: F811
    """Start a cluster of the requested kind, in the form of Dask's fixture of that name."""
    del loop
    own, cluster = start()
    workers = [{"address": address} for address in own.scheduler_info()["workers"]]
    own.close()
    yield {"address": cluster.scheduler_address}, workers
    cluster.close()


class SharedCluster:
    """Cluster for all tests of collections, replaced if a test has left tasks behind."""

    def __init__(self) -> None:
        self.own, self.cluster = start()

    def close(self) -> None:
        """End the cluster."""
        self.own.close()
        self.cluster.close()

    def clean(self) -> None:
        """Wait until the scheduler has forgotten a test's tasks.

        Tests of arrays use the same names for different data, so the cluster would reuse tasks of
        an earlier test. Dask's scheduler keeps released tasks forever if a name came with two
        graphs.
        """
        for attempt in range(200):
            if not self.cluster.scheduler.tasks:
                return
            if attempt == 0:
                gc.collect()
            time.sleep(0.01)
        self.close()
        self.own, self.cluster = start()


@pytest.fixture(scope="session")
def shared() -> Iterator[SharedCluster]:
    """Yield the cluster of the tests of collections."""
    cluster = SharedCluster()
    yield cluster
    cluster.close()


@pytest.fixture(autouse=True)
def collections_on_cluster(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test of collections on the cluster, regardless of the scheduler that it names."""
    if _of_client_suite(request.node):
        yield
        return
    shared_cluster: SharedCluster = request.getfixturevalue("shared")
    before = dict(dask.base.named_schedulers)
    dask.base.named_schedulers.update(dict.fromkeys(NAMES, shared_cluster.own.get))
    with dask.config.set(scheduler="dask.distributed"):
        yield
    dask.base.named_schedulers.clear()
    dask.base.named_schedulers.update(before)
    shared_cluster.clean()


def pytest_runtest_logstart(nodeid: str) -> None:
    """Record the running test, in case it ends this process."""
    record(nodeid, "begun")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record the outcome of a test."""
    if report.when == "call" or report.outcome != "passed":
        expected = hasattr(report, "wasxfail")
        record(report.nodeid, "expected to fail" if expected else report.outcome)
