"""The engine ``spark:local`` passes the contract of engines, with a real standalone cluster."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from contract import OwnedClusterContract
from cycles import CYCLES_TIMEOUT, check_cycles, find_descendants
from scale import FULL
from services import is_empty, temporary_directory, until
from spark_properties import PROPERTIES

import hyperplane
from hyperplane.clusters import records
from hyperplane.clusters.framework import CLOSED
from hyperplane.spec.spark_options import MIB, SparkOptions

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.cluster]

ENGINE = "spark:local"
SMALL: dict[str, Any] = {
    "num_workers": 1,
    "nprocs": 2,
    "nthreads": 1,
    "ram_gb_per_proc": 0.95,
    "local_fit": "exact",
    "timeout": 280,
    "engine_options": {"properties": PROPERTIES},
}


class TestSpark(OwnedClusterContract):
    at_full_scale = frozenset(
        {
            "test_closing_twice_and_in_any_order",
            # test_spark.py has it with a job.
            "test_a_cluster_closes_after_its_idle_timeout",
            "test_a_call_replaces_its_earlier_cluster",
            "test_a_call_replaces_the_cluster_of_another_process",
            "test_a_cluster_ends_with_its_owner[exit]",
        }
    )
    engine = ENGINE
    small = SMALL
    print_workers = (
        "import warnings\nwarnings.simplefilter('ignore')\n"
        "context = client.spark.sparkContext\ncontext.setLogLevel('OFF')\n"
        "def find_executor(_):\n"
        "    import psutil, time\n"
        "    time.sleep(1)\n"
        "    return next(p.pid for p in psutil.Process().parents() if p.name() == 'java')\n"
        "found = set()\n"
        "while len(found) < 2:\n"
        "    found |= set(context.parallelize(range(2), 2).map(find_executor).collect())\n"
        "print('workers', *found, flush=True)\n"
    )

    @pytest.mark.cluster
    @pytest.mark.slow
    def test_get_cluster_attaches_and_can_close_the_cluster(self) -> None:
        # test_spark.py attaches to a cluster.
        super().test_get_cluster_attaches_and_can_close_the_cluster()

    def call(self, client: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        context = client.spark.sparkContext
        return context.parallelize([0], 1).map(lambda _: function(*arguments)).first()


def _descendants(cluster: Any) -> list[psutil.Process]:
    program = psutil.Process(cluster.program_pid)
    return [program, *program.children(recursive=True)]


def _find_master(cluster: Any) -> psutil.Process:
    for process in psutil.Process(cluster.program_pid).children():
        with suppress(psutil.ZombieProcess):  # those of workers that have ended
            if any(word.endswith(".Master") for word in process.cmdline()):
                return process
    raise AssertionError("no master runs")


def _gone(processes: list[psutil.Process]) -> bool:
    return not any(process.is_running() for process in processes)


@pytest.mark.slow
def test_nothing_is_left_after_the_program_with_the_processes_is_killed() -> None:
    _, cluster = hyperplane.start(hyperplane.plan_cluster(engine=ENGINE, **SMALL))
    every = _descendants(cluster)
    assert len(every) == 4
    os.kill(cluster.program_pid, signal.SIGKILL)
    until(lambda: cluster.status == CLOSED and records.read_all(starting=True) == [])
    until(lambda: _gone(every))
    until(lambda: is_empty(Path(os.environ["TMPDIR"])))


@contextmanager
def run_cluster() -> Iterator[list[psutil.Process]]:
    # One worker, and a job of Python processes in place of SQL: 18 s of CPU time in place of 32.
    plan = hyperplane.plan_cluster(engine=ENGINE, **{**SMALL, "nprocs": 1})
    client, cluster = hyperplane.start(plan)
    assert client.spark.sparkContext.parallelize(range(7), 2).map(lambda n: n).count() == 7
    driver = client.spark.sparkContext._gateway.proc.pid
    yield find_descendants(cluster.program_pid, driver)
    client.close()
    cluster.close()


@pytest.mark.skipif(not FULL, reason="other tests end a cluster and look: at full scale")
@pytest.mark.timeout(CYCLES_TIMEOUT)
def test_starts_and_ends_leave_no_process_port_or_file() -> None:
    check_cycles(20, run_cluster)


@pytest.fixture(scope="module")
def running() -> Iterator[Any]:
    """A client and its cluster for the tests below in their order; the last one ends it."""
    with temporary_directory():
        started = hyperplane.start(hyperplane.plan_cluster(engine=ENGINE, **SMALL))
        try:
            yield started
        finally:
            started.client.close()
            started.cluster.close()


def test_executors_have_the_resources_of_the_plan(running: Any) -> None:
    client, cluster = running
    options = SparkOptions.of(cluster.plan.options)
    assert options.heap + options.overhead == 950_000_000
    context = client.spark.sparkContext
    assert context.master == cluster.address
    until(lambda: context._jsc.sc().getExecutorMemoryStatus().size() == 3)  # and the driver
    assert context.defaultParallelism == 2
    configuration = dict(context.getConf().getAll())
    assert configuration["spark.executor.memory"] == f"{options.heap // MIB}m"
    heaps = [
        part
        for process in _descendants(cluster)
        for part in process.cmdline()
        if part == f"-Xmx{options.heap // MIB}M"
    ]
    assert len(heaps) == 2


def test_every_port_of_spark_is_on_the_loopback_interface(running: Any) -> None:
    client, cluster = running
    client.spark.sparkContext.parallelize(range(4)).map(str).collect()  # with Python workers
    processes = {*_descendants(cluster), *psutil.Process().children(recursive=True)}
    ports = [
        connection.laddr
        for process in processes
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(ports) > 8
    assert {port.ip.removeprefix("::ffff:") for port in ports} == {"127.0.0.1"}


def test_the_secret_is_in_one_private_file_only(running: Any) -> None:
    client, cluster = running
    context = client.spark.sparkContext
    secret = context.getConf().get("spark.authenticate.secret")
    assert len(secret) == 64
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            assert secret not in " ".join(process.cmdline())
    folder = cluster.conf.parent
    written = [
        file
        for file in (*folder.rglob("*"), *Path(os.environ["TMPDIR"]).rglob("*"))
        if _contains(file, secret)
    ]
    assert set(written) == {cluster.conf / "spark-defaults.conf"}
    assert stat.S_IMODE(written[0].stat().st_mode) == 0o600
    pages = [
        f"{context.uiWebUrl}/environment/",
        f"{cluster.dashboard}/",
        f"{cluster.dashboard}/json/",
    ]
    for page in pages:
        with urllib.request.urlopen(page, timeout=100) as answer:
            assert secret not in answer.read().decode()
    assert secret not in repr(cluster) + repr(client) + str(cluster.record)


def _contains(file: Path, text: str) -> bool:
    with suppress(OSError):  # a folder, or a file that Spark has just removed
        return text in file.read_text(errors="replace")
    return False


def test_a_program_without_the_secret_is_refused(running: Any, tmp_path: Path) -> None:
    _, cluster = running
    defaults = (cluster.conf / "spark-defaults.conf").read_text().splitlines()
    (tmp_path / "spark-defaults.conf").write_text(
        "\n".join(
            "spark.authenticate.secret=" + "0" * 64 if "authenticate.secret" in line else line
            for line in defaults
        )
    )
    program = subprocess.Popen(
        [sys.executable, "-c", "from pyspark import SparkContext; SparkContext(appName='refused')"],
        env={**os.environ, "SPARK_CONF_DIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert program.stderr is not None
        # It would try again for a minute.
        assert any("SaslException" in line for line in program.stderr)
        with urllib.request.urlopen(f"{cluster.dashboard}/json/", timeout=100) as answer:
            state = json.load(answer)
        assert "refused" not in [each["name"] for each in state["activeapps"]]
    finally:
        os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


def test_a_killed_worker_is_replaced_and_the_work_is_done(running: Any) -> None:
    client, cluster = running
    context = client.spark.sparkContext

    def square(number: int) -> int:
        import time

        time.sleep(0.5)
        return number * number

    numbers = context.parallelize(range(12), 12).map(square)
    name, pid = next(iter(cluster.worker_pids.items()))
    found: list[list[int]] = []
    thread = threading.Thread(target=lambda: found.append(numbers.collect()))
    thread.start()
    until(lambda: bool(context.statusTracker().getActiveJobsIds()))
    os.kill(pid, signal.SIGKILL)
    thread.join(280)
    assert found == [[number**2 for number in range(12)]]
    until(lambda: cluster.worker_pids.get(name, pid) != pid)
    until(lambda: records.read_all()[-1].workers == 2)


def test_the_cluster_ends_with_its_master(running: Any) -> None:
    client, cluster = running
    spark = client.spark
    every = find_descendants(cluster.program_pid, spark.sparkContext._gateway.proc.pid)
    _find_master(cluster).send_signal(signal.SIGKILL)
    until(lambda: cluster.status == CLOSED)
    assert "master" in cluster.end_reason
    until(lambda: records.read_all(starting=True) == [])
    # The driver of this process, too.
    until(lambda: _gone(every))
    until(lambda: spark.sparkContext._jsc is None)
    until(lambda: "SPARK_CONF_DIR" not in os.environ)
    until(lambda: is_empty(Path(os.environ["TMPDIR"])))
    with pytest.raises(hyperplane.EngineError, match="has ended"):
        _ = client.spark
