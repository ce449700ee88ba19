"""The engine ``spark:slurm`` on a separate Slurm: jobs, rows, replacement, and ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.config
import psutil
import pytest
from scale import FULL
from services import Slot, is_empty, temporary_directory, until
from services_slurm import interface_of, queue, read_job_details, service
from spark_properties import PROPERTIES

import hyperplane
from hyperplane.clusters import records
from hyperplane.clusters.framework import RUNNING
from hyperplane.clusters.spark.cluster import OwnedSparkCluster
from hyperplane.clusters.spark.slurm.cluster import PROGRAM
from hyperplane.clusters.spark.slurm.engine import SlurmSparkEngine
from hyperplane.spark import init_spark, stop_spark

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.slow]
__all__ = ["service"]  # a fixture

ENGINE = "spark:slurm"
SMALL: dict[str, Any] = {
    "engine": ENGINE,
    "num_workers": 1,
    "nprocs": 1,
    "nthreads": 1,
    "cores_per_worker": 1,
    "ram_gb_per_proc": 0.95,
    "timeout": 280,
}


@pytest.fixture(scope="module", autouse=True)
def own_temporary_directory() -> Iterator[None]:
    """One for all tests, because the records of a cluster are there."""
    with temporary_directory():
        yield


@pytest.fixture(scope="module")
def address(service: Slot) -> Iterator[str]:
    """The address of an interface that the tests add to this machine."""
    name, found = interface_of(service), f"10.77.{service.number}.1"
    subprocess.run(["ip", "link", "add", name, "type", "bridge"], check=True)
    try:
        subprocess.run(["ip", "address", "add", f"{found}/24", "dev", name], check=True)
        subprocess.run(["ip", "link", "set", name, "up"], check=True)
        yield found
    finally:
        subprocess.run(["ip", "link", "del", name], check=True)


@pytest.fixture(scope="module", autouse=True)
def shared(service: Slot, address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder that the nodes share; it and the queue are empty after the tests."""
    folder = tmp_path_factory.mktemp("shared")
    given = {
        "auto": ["slurm"],
        "slurm.interface": interface_of(service),
        "slurm.shared_folder": str(folder),
        "slurm.local_directory": str(folder),
    }
    with dask.config.set({f"hyperplane.engines.{key}": value for key, value in given.items()}):
        yield folder
    until(lambda: queue() == {} and not programs())
    until(lambda: is_empty(folder))


@pytest.fixture(scope="module")
def spark(shared: Path) -> Iterator[Any]:
    """A session with executors in two jobs, for the tests below, which do not end it."""
    session = init_spark("shared", 2, 1, "512m", PROPERTIES)
    try:
        yield session
    finally:
        stop_spark()


@pytest.fixture
def cluster(spark: Any) -> Any:
    """The shared cluster."""
    del spark
    [running] = OwnedSparkCluster.running.values()
    return running


def programs() -> list[psutil.Process]:
    """The programs of all jobs."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if PROGRAM in (process.info["cmdline"] or []):
            found.append(process)
    return found


def job_names() -> set[str]:
    """Names of the jobs in the queue, which are those of their clusters."""
    return {read_job_details(job)["JobName"] for job in queue()}


def count_words(spark: Any) -> dict[str, int]:
    """Return numbers of words, with Python on executors and a shuffle."""
    words = spark.sparkContext.parallelize(["a b a", "b a"] * 20, 4).flatMap(str.split)
    return dict(words.map(lambda word: (word, 1)).reduceByKey(lambda a, b: a + b).collect())


def test_each_worker_is_a_job_with_the_resources_of_the_plan(
    spark: Any, cluster: Any, address: str
) -> None:
    jobs = queue("RUNNING")
    assert len(jobs) == 2
    memory = cluster.plan.worker.ram_per_proc + 500_000_000
    for job in jobs:
        details = read_job_details(job)
        assert (details["NumCPUs"], details["JobName"]) == ("1", cluster.name)
        assert details["MinMemoryNode"] == f"{-(-memory // 2**20)}M"
    assert count_words(spark) == {"a": 60, "b": 40}
    until(lambda: spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() == 3)
    assert cluster.address.startswith(f"spark://{address}:")
    [record] = records.read_all()
    assert (record.engine, record.workers) == (ENGINE, 2)
    assert set(record.client["hosts"].values()) == {address}


def test_secrets_are_only_in_private_files_and_not_in_the_environment_of_jobs(
    spark: Any, cluster: Any, shared: Path
) -> None:
    secret = spark.sparkContext.getConf().get("spark.authenticate.secret")
    [file] = shared.rglob("connection.json")
    assert file.stat().st_mode & 0o77 == 0
    token = json.loads(file.read_text())["token"]
    for process in psutil.process_iter(["cmdline"]):
        words = " ".join(process.info["cmdline"] or [])
        assert secret not in words
        assert token not in words
    for program in programs():
        assert secret not in json.dumps(program.environ())
    written = [each for each in shared.rglob("*") if each.is_file()]
    assert len(written) > 4
    assert not [each for each in written if secret in each.read_text(errors="replace")]
    assert (cluster.conf / "spark-defaults.conf").stat().st_mode & 0o77 == 0


def test_the_session_and_all_workers_encrypt_connections(spark: Any, shared: Path) -> None:
    configuration = spark.sparkContext.getConf()
    files = [file.read_text().splitlines() for file in shared.rglob("spark-defaults.conf")]
    assert len(files) == 2
    for name in ("spark.authenticate", "spark.network.crypto.enabled"):
        assert configuration.get(name) == "true"
        assert [f"{name}=true" in lines for lines in files] == [True, True]


@pytest.mark.skipif(not FULL, reason="it waits for a second job: at full scale")
def test_a_cancelled_job_is_submitted_again_and_the_rows_are_right(
    spark: Any, cluster: Any, caplog: pytest.LogCaptureFixture
) -> None:
    before = sorted(cluster.workers)
    victim, kept = sorted(queue("RUNNING"))
    with caplog.at_level("WARNING"):
        subprocess.run(["scancel", victim], check=True)
        assert count_words(spark) == {"a": 60, "b": 40}
        until(lambda: f"job {victim} (worker spark-worker-" in caplog.text)
        until(lambda: "was cancelled; it is submitted again" in caplog.text)
    until(lambda: sorted(cluster.workers) == before and len(queue("RUNNING")) == 2, 250)
    assert kept in queue("RUNNING")
    assert count_words(spark) == {"a": 60, "b": 40}


def test_jobs_that_never_start_are_named(cluster: Any, tmp_path: Path) -> None:
    known = len(records.read_all(starting=True))
    plan = hyperplane.plan_cluster(**SMALL, engine_options={"partition": "missing"})
    with pytest.raises(hyperplane.StartFailed, match=r"sbatch refused the job: .*partition"):
        hyperplane.start(plan)
    options = {"prologue": ["unset JAVA_HOME", f"export PATH={tmp_path}"]}
    plan = hyperplane.plan_cluster(**SMALL, engine_options={**options, "python": sys.executable})
    with pytest.raises(hyperplane.StartFailed, match="Java is not installed: install Java 17"):
        hyperplane.start(plan)
    until(lambda: job_names() == {cluster.name})
    assert len(records.read_all(starting=True)) == known


def test_the_script_of_a_job_is_rendered_without_slurm() -> None:
    plan = hyperplane.plan_cluster(**SMALL, engine_options={"partition": "long"})
    script = SlurmSparkEngine().render(plan)
    assert "#SBATCH --partition=long" in script
    assert f"-m {PROGRAM} " in script
    with pytest.raises(hyperplane.RequestError, match="'lo', the address 127"):
        hyperplane.plan_cluster(**SMALL, engine_options={"interface": "lo"})


@pytest.mark.skipif(not FULL, reason="test_spark_ssh.py does it with hosts: at full scale")
def test_nothing_is_left_after_the_owner_is_killed(cluster: Any) -> None:
    code = (
        "import hyperplane, json, sys, time\n"
        "client, cluster = hyperplane.start(hyperplane.plan_cluster(**json.loads(sys.argv[1])))\n"
        "print('ready', client.spark.range(10).count(), cluster.conf, flush=True)\n"
        "time.sleep(600)\n"
    )
    before, jobs = {process.pid for process in programs()}, set(queue())
    settings = dask.config.get("hyperplane.engines.slurm")
    names = ("interface", "shared_folder", "local_directory")
    options = {**{name: settings[name] for name in names}, "properties": PROPERTIES}
    request = json.dumps({**SMALL, "engine_options": options})
    with subprocess.Popen(
        [sys.executable, "-c", code, request], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        words = owner.stdout.readline().split()
        assert words[:2] == ["ready", "10"]
        every = psutil.Process(owner.pid).children(recursive=True)
        owner.send_signal(signal.SIGKILL)
    until(lambda: {process.pid for process in programs()} <= before and set(queue()) <= jobs)
    until(lambda: not any(process.is_running() for process in every))
    assert not Path(words[2]).exists()
    assert cluster.status == RUNNING
