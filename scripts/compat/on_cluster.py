"""A pytest plugin: tests of Dask's own run on a cluster of this package.

Used by :mod:`run_suites` in a separate process, with ``-p on_cluster``. Its environment variables:
``COMPAT_CLUSTER`` (``hyperplane`` or ``plain``), ``COMPAT_EVERY`` (n: run each n-th test),
``COMPAT_ONLY`` (a file with the names of the tests to run; empty for all) and ``COMPAT_REPORT``
(the file for the results, a line for each: tests that it has already do not run again).
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
from run_suites import read

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
#: Names of Dask's schedulers on one machine.
NAMES = (
    *("sync", "synchronous", "single-threaded", "threads", "threading"),
    *("processes", "multiprocessing"),
)

_report = Path(os.environ["COMPAT_REPORT"])


def start() -> tuple[Client, Any]:
    """Start the kind of cluster that is asked for: two processes of one thread and 1 GB."""
    if os.environ["COMPAT_CLUSTER"] == "plain":
        options = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": 10**9}
        cluster = LocalCluster(dashboard_address="127.0.0.1:0", **options)
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


def note(name: str, outcome: str) -> None:
    """Add the outcome of a test to the report at once: the process may end in the next test."""
    with _report.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps([name, outcome]) + "\n")


def _of_client_suite(item: pytest.Item) -> bool:
    return item.path.name == "test_client.py"


def _has_own_cluster(item: pytest.Item) -> bool:
    if _of_client_suite(item):
        return not FROM_SUITE & set(getattr(item, "fixturenames", ()))
    # The tests of collections that use `gen_cluster` or start a LocalCluster are all in these; the
    # fixture `cleanup` of a cluster's fixtures forgets all clients that are there.
    fixtures = getattr(item, "fixturenames", ())
    return item.path.name == "test_distributed.py" or "cleanup" in fixtures


def _left_out(item: pytest.Item) -> set[str]:
    """Marks of tests that do not run; slow ones of the client are few, and do."""
    return {"network", "gpu"} if _of_client_suite(item) else {"network", "gpu", "slow"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what builds its own cluster, what is excluded, and all but each n-th test."""
    every, reasons, done = int(os.environ["COMPAT_EVERY"]), excluded(), read(_report)
    only = set(Path(os.environ["COMPAT_ONLY"]).read_text(encoding="utf-8").splitlines())
    chosen = []
    for number, item in enumerate(items):
        if item.nodeid in done or (only and item.nodeid not in only):
            continue
        name = item.nodeid.partition("/tests/")[2] or item.nodeid
        if _has_own_cluster(item):
            note(item.nodeid, "own cluster")
        elif reason := next((why for part, why in reasons.items() if part in name), None):
            note(item.nodeid, f"excluded: {reason}")
        elif marks := _left_out(item) & {mark.name for mark in item.iter_markers()}:
            note(item.nodeid, f"excluded: marked by Dask as {min(marks)}")
        elif number % every == 0 or only:
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


class Shared:
    """One cluster for all tests of collections; a new one where a test has left tasks behind."""

    def __init__(self) -> None:
        self.own, self.cluster = start()

    def close(self) -> None:
        """End the cluster."""
        self.own.close()
        self.cluster.close()

    def clean(self) -> None:
        """Wait until the scheduler has forgotten a test's tasks.

        Tests of arrays give the same names to other data, and the cluster would take the tasks of
        one test for those of the next. Dask's scheduler keeps released tasks for good when a name
        came with two graphs.
        """
        for look in range(200):
            if not self.cluster.scheduler.tasks:
                return
            if look == 0:
                gc.collect()
            time.sleep(0.01)
        self.close()
        self.own, self.cluster = start()


@pytest.fixture(scope="session")
def shared() -> Iterator[Shared]:
    """The cluster of the tests of collections."""
    found = Shared()
    yield found
    found.close()


@pytest.fixture(autouse=True)
def collections_on_cluster(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have a test of collections compute on the cluster, whichever scheduler it names."""
    if _of_client_suite(request.node):
        yield
        return
    on_it: Shared = request.getfixturevalue("shared")
    before = dict(dask.base.named_schedulers)
    dask.base.named_schedulers.update(dict.fromkeys(NAMES, on_it.own.get))
    with dask.config.set(scheduler="dask.distributed"):
        yield
    dask.base.named_schedulers.clear()
    dask.base.named_schedulers.update(before)
    on_it.clean()


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note which test runs, for the case that it ends this process."""
    note(nodeid, "begun")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the outcome of a test."""
    if report.when == "call" or report.outcome != "passed":
        expected = hasattr(report, "wasxfail")
        note(report.nodeid, "expected to fail" if expected else report.outcome)
