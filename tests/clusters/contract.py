"""Tests that every engine must pass; the tests of each engine subclass them."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import dask.config
import dask.dataframe as dd
import pytest
from dask.distributed import wait
from services import temporary_directory, until

import hyperplane
from hyperplane import MemoryPolicy
from hyperplane.demo import check, data, job

# Remote workers cannot import the functions below from the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def thresholds(dask_worker: Any) -> dict[str, Any]:
    """Return a worker's memory thresholds; runs in the worker."""
    manager = dask_worker.memory_manager
    return {
        "target": manager.memory_target_fraction,
        "spill": manager.memory_spill_fraction,
        "pause": manager.memory_pause_fraction,
    }


@dataclass(frozen=True)
class Running:
    """A running cluster.

    Parameters
    ----------
    client, cluster
        From ``hyperplane.start``.
    workers : tuple of int
        Numbers of worker processes just after the start, counted in Dask's two ways.
    """

    client: Any
    cluster: Any
    workers: tuple[int, int]


@contextmanager
def started(plan: hyperplane.ClusterPlan) -> Iterator[Running]:
    """The cluster of a plan, closed at the end of the block."""
    client, cluster = hyperplane.start(plan)
    workers = (len(client.nthreads()), len(client.has_what()))
    with cluster, client:
        yield Running(client, cluster, workers)


@pytest.mark.cluster
class EngineContract:
    """Start, use, scale, restart and close a cluster on one engine."""

    engine: str
    #: Arguments that make a small cluster of two worker processes.
    small: dict[str, Any]
    #: Whether workers see the files of this machine under the same paths.
    shares_disk = True

    @classmethod
    def plan(cls, **options: Any) -> hyperplane.ClusterPlan:
        return hyperplane.plan_cluster(**{"engine": cls.engine, **cls.small, **options})

    @pytest.fixture
    def running(self) -> Iterator[Running]:
        """A cluster for a test that restores its two workers."""
        with started(self.plan()) as found:
            yield found

    def test_says_whether_it_can_be_used(self) -> None:
        from hyperplane.clusters import registry

        usable, reason = registry.load(self.engine).available()
        assert usable
        assert reason

    def test_plan_is_plain_data(self) -> None:
        plan = self.plan()
        assert json.loads(json.dumps(plan.to_dict()))["engine"] == self.engine

    def test_workers_are_there_when_it_returns(self, running: Running) -> None:
        assert running.workers == (2, 2)
        assert running.client.submit(sum, range(10)).result() == 45

    def test_memory_policy_survives_scale_and_restart(self) -> None:
        policy = MemoryPolicy(target=0.5, spill=0.6, pause=0.7, terminate=0.9)
        expected = {"target": 0.5, "spill": 0.6, "pause": 0.7}
        before = json.dumps(dask.config.config, default=str)
        client, cluster = hyperplane.start(self.plan(memory=policy))
        with cluster, client:
            assert list(client.run(thresholds).values()) == [expected] * 2
            cluster.scale(3)
            client.wait_for_workers(3, timeout=120)
            assert list(client.run(thresholds).values()) == [expected] * 3
            client.restart()
            assert list(client.run(thresholds).values()) == [expected] * 3
            self.check_terminate(cluster, 0.9)
        assert json.dumps(dask.config.config, default=str) == before

    def check_terminate(self, cluster: Any, expected: float) -> None:
        """Check the threshold that is outside the worker process."""
        raise AssertionError(f"say where engine {self.engine} keeps the terminate threshold")

    def test_two_clusters_with_different_policies(self) -> None:
        first = hyperplane.start(self.plan(memory=MemoryPolicy(pause=0.75)))
        second = hyperplane.start(self.plan(memory=MemoryPolicy(pause=0.9, terminate=False)))
        with first.cluster, first.client, second.cluster, second.client:
            first.client.restart()
            assert {t["pause"] for t in first.client.run(thresholds).values()} == {0.75}
            assert {t["pause"] for t in second.client.run(thresholds).values()} == {0.9}
            self.check_terminate(first.cluster, 0.95)
            self.check_terminate(second.cluster, False)

    def test_another_handle_finds_it_and_closes_it(self) -> None:
        started = hyperplane.start(self.plan())
        found = hyperplane.get_cluster(started.cluster.name, self.engine)
        assert found.client.submit(sum, [1, 2]).result() == 3
        assert "Scheduler" in found.cluster.get_logs()
        found.client.shutdown()
        with pytest.raises(hyperplane.EngineError, match="running:"):
            hyperplane.get_cluster(started.cluster.name, self.engine)
        started.client.close()
        started.cluster.close()

    def test_the_main_job_gives_what_pandas_gives(
        self, running: Running, flights_of_2013: Path
    ) -> None:
        url = str(flights_of_2013)
        in_pandas = data.read_with_pandas(url)
        if self.shares_disk:
            flights = data.read_with_dask(url)
        else:
            flights = dd.from_pandas(in_pandas, npartitions=4)
        client = running.client
        found = job.finish(*client.gather(client.compute(job.lazy_results(flights))))
        assert check.compare(found, job.results_in_pandas(in_pandas))

    def test_old_plugin_method_still_works(self, running: Running) -> None:
        from distributed import WorkerPlugin

        class Marks(WorkerPlugin):
            def setup(self, worker: Any) -> None:
                worker.marked = True

        running.client.register_worker_plugin(Marks(), name="marks")
        assert all(running.client.run(lambda dask_worker: dask_worker.marked).values())
        running.client.unregister_worker_plugin("marks")

    def test_a_killed_worker_comes_back_and_the_work_is_done(self, running: Running) -> None:
        client = running.client
        victim = next(iter(client.nthreads()))
        futures = client.map(slow_square(), range(20), pure=False)
        client.run(_die, workers=[victim], on_error="ignore")
        # The scheduler may notice it after all results are ready.
        until(lambda: victim not in client.nthreads())
        wait(futures, timeout=120)
        assert client.gather(futures) == [n * n for n in range(20)]
        client.wait_for_workers(2, timeout=120)


class OneClusterContract(EngineContract):
    """The contract, with one cluster for all tests that do not change it.

    The tests of the engine have the fixture ``one_cluster`` below, and one named ``surroundings``,
    in which a cluster can start.
    """

    @pytest.fixture
    def running(self, one_cluster: Running) -> Running:  # type: ignore[override]
        """A cluster for all tests that restore its two workers."""
        return one_cluster


@pytest.fixture(scope="class")
def one_cluster(request: pytest.FixtureRequest, surroundings: object) -> Iterator[Running]:
    """The cluster that the tests of a class share."""
    del surroundings
    with temporary_directory(), started(request.cls.plan()) as found:
        yield found


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def slow_square() -> Callable[[int], int]:
    """A function that is pickled by value; Dask pickles functions of modules by reference."""

    def square(number: int) -> int:
        time.sleep(0.1)
        return number * number

    return square
