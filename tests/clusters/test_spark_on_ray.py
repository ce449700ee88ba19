"""Spark on a Ray cluster of this machine: published programs, refused requests and what is left."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.config
import pandas as pd
import psutil
import pytest
from cycles import CYCLES_TIMEOUT, check_cycles, find_descendants
from process_states import has_ended
from scale import FULL
from services import is_empty, temporary_directory, until

from hyperplane.clusters.framework import CLOSED
from hyperplane.clusters.ray.cluster import AttachedRayCluster
from hyperplane.clusters.records import ClusterRecord
from hyperplane.clusters.spark import on_ray
from hyperplane.clusters.spark.driver import VARIABLES
from hyperplane.core.optional import is_installed
from hyperplane.errors import EngineError, EngineUnavailable, RequestError
from hyperplane.ray_common import initialize_ray_cluster, stop_ray_cluster
from hyperplane.spark import init_spark, stop_spark
from hyperplane.spec.spark_options import MIB

SMALL: dict[str, Any] = {"num_executors": 1, "executor_cores": 1, "executor_memory": "512m"}


def make_cluster(engine: str = "ray:local") -> AttachedRayCluster:
    return AttachedRayCluster(ClusterRecord("x", engine, "127.0.0.1:1", "", 0, 0.0, 1, 1, 1))


def test_other_objects_and_clusters_of_other_machines_are_refused() -> None:
    with pytest.raises(RequestError, match="initialize_ray_cluster") as caught:
        init_spark(executor_memory="1", ray_cluster="ray")  # type: ignore[arg-type]
    assert [each.where for each in caught.value.faults] == ["executor_memory", "ray_cluster"]
    with pytest.raises(RequestError, match=r"x of the engine ray:ssh: .*ray:local.*no password"):
        init_spark(ray_cluster=make_cluster("ray:ssh"))


@pytest.mark.skipif(is_installed("raydp"), reason="RayDP is installed")
def test_without_raydp_the_extra_is_named() -> None:
    with pytest.raises(EngineUnavailable, match=r"hyperplane\[raydp\]"):
        init_spark(ray_cluster=make_cluster())


@pytest.fixture(scope="module", autouse=True)
def own_temporary_directory() -> Iterator[None]:
    with temporary_directory():
        yield


@pytest.mark.spark
@pytest.mark.cluster
def test_a_published_program_runs_and_its_exit_leaves_nothing(tmp_path: Path) -> None:
    rows = pd.DataFrame({"word": ["a", "b", "a"], "n": [1, 2, 3]})
    rows.to_csv(tmp_path / "data.csv", index=False)
    program = tmp_path / "program.py"
    program.write_text(
        "import ray, raydp\n"
        "import pandas as pd\n"
        "from hyperplane.ray_common import initialize_ray_cluster\n"
        "from hyperplane.spark import init_spark\n"
        "from pyspark.sql.functions import pandas_udf\n"
        "ray_cluster = initialize_ray_cluster(1, 2, 3)\n"
        "try:\n"
        "    init_spark('example', 3, 1, '512m', ray_cluster=ray_cluster)\n"
        "except Exception as error:\n"
        "    print('refused', str(error).splitlines()[-1])\n"
        "spark = raydp.init_spark(\n"
        "    'example', num_executors=1, executor_cores=1, executor_memory='512M')\n"
        "@pandas_udf('long')\n"
        "def double(n: pd.Series) -> pd.Series:\n"
        "    return n * 2\n"
        f"rows = spark.read.csv({str(tmp_path / 'data.csv')!r}, header=True, inferSchema=True)\n"
        "print('sums', rows.select('word', double('n').alias('n')).groupBy('word').sum('n')\n"
        "      .orderBy('word').collect())\n"
        "dataset = ray.data.from_spark(rows)\n"
        "print('dataset', sorted(dataset.to_pandas()['n'].tolist()))\n"
        "print('back', dataset.to_spark(spark).selectExpr('sum(n)').first()[0])\n"
        # The same name, and more than half of the memory: the former session has to end first.
        "spark = init_spark('example', 1, 1, '1g', ray_cluster=ray_cluster)\n"
        "print('again', spark.range(3).count(), spark.sparkContext.master, flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    refused = next(line for line in lines if line.startswith("refused"))
    assert re.search(r"num_executors = 3: .* nodes of Ray: 2 cores and [0-9.]+ GB$", refused)
    assert "sums [Row(word='a', sum(n)=8), Row(word='b', sum(n)=4)]" in lines
    assert "dataset [1, 2, 3]" in lines
    assert "back 6" in lines
    assert any(line.startswith("again 3 ray://") for line in lines), lines
    assert "StatusConsoleListener" not in done.stdout  # the driver finds the settings of its log
    assert is_empty(Path(os.environ["TMPDIR"]))


@contextlib.contextmanager
def run_session() -> Iterator[list[psutil.Process]]:
    ray_cluster = initialize_ray_cluster(1, 2, 3)
    session = init_spark(**SMALL, ray_cluster=ray_cluster)
    assert session.range(7).count() == 7
    yield find_descendants(ray_cluster.program_pid, session.sparkContext._gateway.proc.pid)
    stop_spark()
    stop_ray_cluster(ray_cluster)


@pytest.mark.spark
@pytest.mark.cluster
@pytest.mark.skipif(not FULL, reason="other tests end a cluster and look: at full scale")
@pytest.mark.timeout(CYCLES_TIMEOUT)
def test_starts_and_ends_leave_no_process_port_or_file() -> None:
    with dask.config.set({"hyperplane.engines.ray_local.dashboard": False}):
        check_cycles(20, run_session)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A Ray cluster with one worker node, for the tests below in their order."""
    before = {name: os.environ.get(name) for name in VARIABLES}
    started = initialize_ray_cluster(1, 2, 3.0)
    try:
        yield started
    finally:
        stop_ray_cluster(started)
    assert before == {name: os.environ.get(name) for name in VARIABLES}
    assert is_empty(Path(os.environ["TMPDIR"]))


def find_jvms(*parents: int) -> list[psutil.Process]:
    """Return the running processes of Java below some processes."""
    found = []
    for parent in parents:
        with contextlib.suppress(psutil.NoSuchProcess):
            found += psutil.Process(parent).children(recursive=True)
    return [each for each in set(found) if is_running_java(each)]


def is_running_java(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.name() == "java" and process.status() != psutil.STATUS_ZOMBIE
    return False


@pytest.mark.spark
@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("size", [{"num_executors": 3}, {"executor_memory": "64g"}])
def test_executors_without_room_are_refused_before_anything_starts(
    cluster: Any, size: dict[str, Any]
) -> None:
    with pytest.raises(RequestError, match="nothing was started") as caught:
        init_spark(**{**SMALL, **size}, ray_cluster=cluster)
    [fault] = caught.value.faults
    assert (fault.where, fault.asked) == ("num_executors", str({**SMALL, **size}["num_executors"]))
    assert re.search("nodes of Ray: 2 cores and [0-9.]+ GB$", fault.allowed)
    assert find_jvms(os.getpid(), cluster.program_pid) == []


@pytest.mark.spark
@pytest.mark.cluster
@pytest.mark.slow
def test_nothing_is_left_of_a_session_whose_cluster_was_killed(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray
    from pyspark.sql import SparkSession

    class Holder:  # local, because workers cannot import this file
        def hold(self) -> None:
            """Return when the actor has started."""

    session = init_spark(
        "mine", **SMALL, configs={"spark.sql.shuffle.partitions": 3}, ray_cluster=cluster
    )
    commands = [" ".join(each.cmdline()) for each in find_jvms(os.getpid(), cluster.program_pid)]
    assert not any("shuffle.partitions" in each for each in commands)  # values may be secret
    assert type(session) is SparkSession
    assert session.sparkContext.master.startswith("ray://")
    assert session.conf.get("spark.sql.shuffle.partitions") == "3"
    assert session.range(100).selectExpr("sum(id)").first()[0] == 4950
    # A request for which others leave no room is refused before this session ends.
    other = ray.remote(num_cpus=1)(Holder).remote()
    ray.get(other.hold.remote())
    monkeypatch.setattr(on_ray, "_FREE_SECONDS", 3)
    with pytest.raises(RequestError, match=r"at most 1, each .* free on the nodes of Ray"):
        init_spark(**{**SMALL, "num_executors": 2}, ray_cluster=cluster)
    assert session.range(7).count() == 7
    on_ray.check_request(cluster, on_ray.SessionRequest("mine", 1, 1, 512 * MIB, {}))
    ray.kill(other)
    jvms = find_jvms(os.getpid(), cluster.program_pid)
    assert len(jvms) >= 4  # the driver, RayDP's master and its actor, and the executor
    for jvm in jvms:
        ports = [each for each in jvm.net_connections("tcp") if each.status == "LISTEN"]
        # None is open to other machines.
        assert {each.laddr.ip for each in ports} == {"::ffff:127.0.0.1"}
    program = psutil.Process(cluster.program_pid)
    every = [program, *program.children(recursive=True), *jvms]
    next(each for each in every if each.name() == "gcs_server").kill()
    until(lambda: cluster.status == CLOSED)
    with pytest.raises(EngineError, match="the head node has ended"):
        init_spark("again", **SMALL, ray_cluster=cluster)
    began = time.monotonic()
    stop_ray_cluster(cluster)
    assert time.monotonic() - began < 60  # RayDP itself would wait for its processes for minutes
    assert all(map(has_ended, every))
