"""Tests that every engine must pass; the tests of each engine subclass them.

``EngineContract`` is for engines of every framework, ``OwnedClusterContract`` for those whose
clusters live in the process that starts them, and ``DaskEngineContract`` for engines of Dask.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import dask.config
import dask.dataframe as dd
import psutil
import pytest
from dask.distributed import wait
from scale import FULL
from services import is_empty, restart, temporary_directory, until, worker_ids
from subprograms import Run, dead, workers_of

import hyperplane
from hyperplane import MemoryPolicy
from hyperplane.clusters import records, registry
from hyperplane.clusters.engine import StartedCluster
from hyperplane.clusters.framework import CLOSED, RUNNING
from hyperplane.demo import check, data, job
from hyperplane.ml import gang

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


class EngineContract:
    """What every engine of every framework promises: plan, start, connect, close."""

    engine: str
    #: Arguments that make a small cluster of two worker processes.
    small: dict[str, Any]

    @classmethod
    def plan(cls, **options: Any) -> hyperplane.ClusterPlan:
        return hyperplane.plan_cluster(**{"engine": cls.engine, **cls.small, **options})

    def call(self, client: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in a worker process with a client of the framework."""
        raise AssertionError(f"define how a client of engine {self.engine} calls a function")

    def close_all(self, found: StartedCluster[Any, Any]) -> None:
        """Close a cluster for all its clients, with the objects of another handle."""
        found.client.close()
        found.cluster.close()

    def status(self, cluster: Any) -> str:
        return registry.load_framework(self.engine).status(cluster)

    def test_says_whether_it_can_be_used(self) -> None:
        usable, reason = registry.load(self.engine).available()
        assert usable
        assert reason

    def test_plan_is_plain_data_with_the_section_of_the_framework(self) -> None:
        plan = self.plan()
        found = json.loads(json.dumps(plan.to_dict()))
        assert found["engine"] == self.engine
        assert found.items() >= plan.options.to_dict().items()
        assert set(plan.options.rows()) <= set(plan.rows())
        assert plan.name.startswith(f"{plan.framework}-cluster-")
        assert pickle.loads(pickle.dumps(plan)) == plan

    @pytest.mark.cluster
    def test_get_cluster_attaches_and_can_close_the_cluster(self) -> None:
        started = hyperplane.start(self.plan())
        name = started.cluster.name
        assert self.status(started.cluster) == RUNNING
        found = hyperplane.get_cluster(name, self.engine)
        assert self.call(found.client, sum, [1, 2]) == 3
        self.close_all(found)
        with pytest.raises(hyperplane.EngineError, match="running:"):
            hyperplane.get_cluster(name, self.engine)
        started.client.close()
        started.cluster.close()
        assert self.status(started.cluster) == CLOSED

    @pytest.mark.cluster
    def test_closing_twice_and_in_any_order(self) -> None:
        client, cluster = hyperplane.start(self.plan())
        cluster.close()
        client.close()
        cluster.close()
        assert self.status(cluster) == CLOSED


class OwnedClusterContract(EngineContract):
    """What engines promise in addition whose clusters live as long as the process that starts them.

    The process has a record of its cluster on this machine.
    """

    #: Code that prints the word ``workers`` and the process ids of ``client``'s workers.
    print_workers: str
    #: Tests that an engine runs at full scale only; other engines, or other tests of it, have the
    #: same promises and run always.
    at_full_scale: ClassVar[frozenset[str]] = frozenset()

    @pytest.fixture(autouse=True)
    def _run_at_full_scale(self, request: pytest.FixtureRequest) -> None:
        if request.node.name in self.at_full_scale and not FULL:
            pytest.skip("another test has the same promise: at full scale")

    def program(self, **options: Any) -> str:
        """Code that starts a small cluster."""
        arguments = {"engine": self.engine, **self.small, **options}
        return (
            "import os, sys, time\nimport hyperplane\n"
            f"client, cluster = hyperplane.initialize_cluster(**{arguments!r})\n"
        )

    @pytest.fixture
    def here(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """The temporary directory of this process and of the programs that the test starts."""
        monkeypatch.setattr(tempfile, "tempdir", str(place))
        monkeypatch.setenv("TMPDIR", str(place))
        return place

    @pytest.mark.cluster
    def test_it_is_listed_until_another_process_stops_it_and_leaves_nothing(
        self, here: Path
    ) -> None:
        plan = self.plan(name="mine")
        before = set(children())
        client, cluster = hyperplane.start(plan)
        [record] = records.read_all()
        assert (record.name, record.engine, record.pid) == ("mine", self.engine, os.getpid())
        assert (record.workers, record.threads) == (plan.dask_workers, plan.total_threads)
        addresses = registry.load_framework(self.engine).addresses(StartedCluster(client, cluster))
        assert (record.scheduler, record.dashboard) == addresses
        with pytest.raises(hyperplane.EngineError, match="'mine' is already running"):
            hyperplane.start(plan)
        assert self.call(client, sum, [1, 2]) == 3
        listed, stopped = hyperplane_commands(
            ("cluster", "list", "--json"), ("cluster", "stop", "mine")
        )
        [found] = json.loads(listed)
        assert (found["name"], found["engine"], found["pid"]) == (
            "mine",
            self.engine,
            os.getpid(),
        )
        assert "security" not in found
        assert stopped == "mine is closed\n"
        assert self.status(cluster) == CLOSED
        client.close()
        cluster.close()
        assert records.read_all(starting=True) == []
        until(lambda: set(children()) <= before)
        assert is_empty(here)

    @pytest.mark.cluster
    def test_a_start_that_fails_leaves_nothing(self, here: Path) -> None:
        before = set(children())
        with pytest.raises(hyperplane.EngineError, match=self.engine):
            hyperplane.start(self.plan(timeout=0.01))
        assert records.read_all(starting=True) == []
        until(lambda: set(children()) <= before)
        assert is_empty(here)

    @pytest.mark.cluster
    def test_a_cluster_closes_after_its_idle_timeout(self) -> None:
        client, cluster = hyperplane.start(self.plan(idle_timeout=0.5))
        until(lambda: self.status(cluster) == CLOSED)
        until(lambda: records.read_all(starting=True) == [])
        client.close()
        cluster.close()

    @pytest.mark.cluster
    def test_a_call_replaces_its_earlier_cluster(self, capsys: pytest.CaptureFixture[str]) -> None:
        pairs = []
        for _ in range(2):
            pairs.append(
                hyperplane.initialize_cluster(engine=self.engine, **self.small, replace=True)
            )
        assert [self.status(cluster) for _, cluster in pairs] == [CLOSED, RUNNING]
        assert f"closed {pairs[0][1].name} first" in capsys.readouterr().err
        pairs[1][0].close()
        pairs[1][1].close()

    @pytest.mark.cluster
    def test_a_call_replaces_the_cluster_of_another_process(self, here: Path, run: Run) -> None:
        code = "import sys; print('ready', flush=True); sys.stdin.read()"
        program = run(code, place=here, start=self.program(name="mine"))
        program.line("ready")
        [record] = records.read_all()
        assert (record.name, record.pid) == ("mine", program.process.pid)
        client, cluster = hyperplane.initialize_cluster(
            engine=self.engine, **self.small, name="mine", replace=True
        )
        [record] = records.read_all()
        assert (record.name, record.pid) == ("mine", os.getpid())
        client.close()
        cluster.close()
        program.finish()
        assert program.process.returncode == 0

    @pytest.mark.cluster
    @pytest.mark.parametrize("ending", ["killed", "exit"])
    def test_a_cluster_ends_with_its_owner(self, here: Path, run: Run, ending: str) -> None:
        last = "time.sleep(600)" if ending == "killed" else "sys.stdin.readline()"
        program = run(self.print_workers + last, place=here, start=self.program())
        workers = workers_of(program)
        assert len(workers) == 2
        if ending == "killed":
            program.process.send_signal(signal.SIGKILL)
            program.process.wait()  # the number of a zombie counts as that of a process
        else:
            program.go_on()
            assert program.finish()[1].splitlines() == []
            assert program.process.returncode == 0
        until(lambda: all(map(dead, workers)))
        until(lambda: not program.family())
        assert records.read_all(starting=True) == []
        assert is_empty(here)


def children() -> list[int]:
    """Return the ids of the processes below this one, without multiprocessing's helpers.

    Workers are forked from a forkserver and have its command line.
    """
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            command = " ".join(child.cmdline())
            is_helper = "resource_tracker" in command or (
                "multiprocessing.forkserver" in command and child.ppid() == os.getpid()
            )
            if not is_helper and child.status() != psutil.STATUS_ZOMBIE:
                found.append(child.pid)
    return found


def hyperplane_commands(*commands: tuple[str, ...]) -> list[str]:
    """Return the outputs of commands of ``hyperplane`` that run in one separate process."""
    script = (
        "import ast, sys\nfrom hyperplane.cli import main\n"
        "for command in ast.literal_eval(sys.argv[1]):\n"
        "    sys.argv[1:] = command\n"
        "    try:\n        main()\n"
        "    except SystemExit as end:\n        assert not end.code\n"
        "    print(end='\\0', flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, repr(commands)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\0")[:-1]


@pytest.mark.cluster
class DaskEngineContract(EngineContract):
    """What engines of Dask promise in addition: use, scale and restart a cluster."""

    #: Whether workers see the files of this machine under the same paths.
    shares_disk = True

    @pytest.fixture
    def running(self) -> Iterator[Running]:
        """A cluster for a test that restores its two workers."""
        with started(self.plan()) as found:
            yield found

    def call(self, client: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        return client.submit(function, *arguments, pure=False).result()

    def close_all(self, found: StartedCluster[Any, Any]) -> None:
        assert "Scheduler" in found.cluster.get_logs()
        found.client.shutdown()

    def test_all_workers_are_connected_when_start_returns(self, running: Running) -> None:
        assert running.workers == (2, 2)
        assert running.client.submit(sum, range(10)).result() == 45

    def test_a_gang_of_two_runs(self, running: Running) -> None:
        def get_rank() -> tuple[str, str]:
            return os.environ["RANK"], os.environ["WORLD_SIZE"]

        assert gang(running.client, get_rank, 2, logs=False) == [("0", "2"), ("1", "2")]

    def test_memory_policies_of_two_clusters_survive_scale_and_restart(self) -> None:
        policy = MemoryPolicy(target=0.5, spill=0.6, pause=0.7, terminate=0.9)
        expected = {"target": 0.5, "spill": 0.6, "pause": 0.7}
        before = json.dumps(dask.config.config, default=str)
        client, cluster = hyperplane.start(self.plan(memory=policy))
        with cluster, client:
            assert list(client.run(thresholds).values()) == [expected] * 2
            second = hyperplane.start(self.plan(memory=MemoryPolicy(pause=0.9, terminate=False)))
            with second.cluster, second.client:
                restart(client)
                assert list(client.run(thresholds).values()) == [expected] * 2
                assert {t["pause"] for t in second.client.run(thresholds).values()} == {0.9}
                self.check_terminate(second.cluster, False)
            cluster.scale(3)
            client.wait_for_workers(3, timeout=120)
            assert list(client.run(thresholds).values()) == [expected] * 3
            restart(client)
            assert list(client.run(thresholds).values()) == [expected] * 3
            self.check_terminate(cluster, 0.9)
        assert json.dumps(dask.config.config, default=str) == before

    def check_terminate(self, cluster: Any, expected: float) -> None:
        """Check the threshold that is outside the worker process."""
        raise AssertionError(f"say where engine {self.engine} keeps the terminate threshold")

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
        victim, old = next(iter(client.nthreads())), worker_ids(client)
        futures = client.map(slow_square(), range(20), pure=False)
        client.run(_die, workers=[victim], on_error="ignore")
        # The scheduler may notice it after all results are ready.
        until(lambda: old - worker_ids(client))
        wait(futures, timeout=120)
        assert client.gather(futures) == [n * n for n in range(20)]
        client.wait_for_workers(2, timeout=120)


class OneClusterContract(DaskEngineContract):
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
