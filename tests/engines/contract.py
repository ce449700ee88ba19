"""What every engine must do; each engine's tests subclass this and say how to start small."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import dask.config
import dask.dataframe as dd
import pytest
from dask.distributed import wait

import hyperplane
from hyperplane import MemoryPolicy
from hyperplane.demo import check, data, job

# Workers elsewhere have no tests to import the functions below from.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def thresholds(dask_worker: Any) -> dict[str, Any]:
    """Read a worker's thresholds, inside it."""
    manager = dask_worker.memory_manager
    return {
        "target": manager.memory_target_fraction,
        "spill": manager.memory_spill_fraction,
        "pause": manager.memory_pause_fraction,
    }


@pytest.mark.cluster
class EngineContract:
    """Start, use, scale, restart and close a cluster on one engine."""

    engine: str
    #: Arguments that make a small cluster of two worker processes.
    small: dict[str, Any]
    #: Whether workers see the files of this machine under the same paths.
    shares_disk = True

    def plan(self, **options: Any) -> hyperplane.ClusterPlan:
        return hyperplane.plan_cluster(**{"engine": self.engine, **self.small, **options})

    def test_says_whether_it_can_be_used(self) -> None:
        from hyperplane.engines import registry

        usable, reason = registry.load(self.engine).available()
        assert usable
        assert reason

    def test_plan_is_plain_data(self) -> None:
        plan = self.plan()
        assert json.loads(json.dumps(plan.to_dict()))["engine"] == self.engine

    def test_workers_are_there_when_it_returns(self) -> None:
        client, cluster = hyperplane.start(self.plan())
        with cluster, client:
            assert len(client.nthreads()) == 2
            assert len(client.has_what()) == 2
            assert client.submit(sum, range(10)).result() == 45

    def test_memory_policy_survives_scale_and_restart(self) -> None:
        policy = MemoryPolicy(target=0.5, spill=0.6, pause=0.7, terminate=0.9)
        expected = {"target": 0.5, "spill": 0.6, "pause": 0.7}
        before = json.dumps(dask.config.config, default=str)
        client, cluster = hyperplane.start(self.plan(memory=policy))
        with cluster, client:
            assert list(client.run(thresholds).values()) == [expected] * 2
            cluster.scale(3)
            client.wait_for_workers(3, timeout=60)
            assert list(client.run(thresholds).values()) == [expected] * 3
            client.restart()
            assert list(client.run(thresholds).values()) == [expected] * 3
            self.check_terminate(cluster, 0.9)
        assert json.dumps(dask.config.config, default=str) == before

    def check_terminate(self, cluster: Any, expected: float) -> None:
        """Check the threshold that lives outside the worker process."""
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

    def test_the_main_job_gives_what_pandas_gives(self, flights_of_2013: Path) -> None:
        url = str(flights_of_2013)
        in_pandas = data.read_with_pandas(url)
        client, cluster = hyperplane.start(self.plan())
        with cluster, client:
            if self.shares_disk:
                flights = data.read_with_dask(url)
            else:
                flights = dd.from_pandas(in_pandas, npartitions=4)
            found = job.finish(*client.gather(client.compute(job.lazy_results(flights))))
        assert check.compare(found, job.results_in_pandas(in_pandas))

    def test_old_plugin_method_still_works(self) -> None:
        from distributed import WorkerPlugin

        class Marks(WorkerPlugin):
            def setup(self, worker: Any) -> None:
                worker.marked = True

        client, cluster = hyperplane.start(self.plan())
        with cluster, client:
            client.register_worker_plugin(Marks(), name="marks")  # type: ignore[attr-defined]
            assert all(client.run(lambda dask_worker: dask_worker.marked).values())

    def test_a_killed_worker_comes_back_and_the_work_is_done(self) -> None:
        client, cluster = hyperplane.start(self.plan())
        with cluster, client:
            victim = next(iter(client.nthreads()))
            futures = client.map(slow_square(), range(20), pure=False)
            client.run(_die, workers=[victim], on_error="ignore")
            wait(futures, timeout=60)
            assert client.gather(futures) == [n * n for n in range(20)]
            client.wait_for_workers(2, timeout=60)
            assert victim not in client.nthreads()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def slow_square() -> Callable[[int], int]:
    """A function that workers need no module for: Dask pickles those of modules by name."""

    def square(number: int) -> int:
        time.sleep(0.1)
        return number * number

    return square
