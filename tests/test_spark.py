"""Sessions of ``hyperplane.spark``: arguments, printed lines, programs and what is left."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.config
import numpy as np
import psutil
import pytest
from services import is_empty, temporary_directory, until
from spark_properties import PROPERTIES

import hyperplane
from hyperplane.clusters import records
from hyperplane.clusters.framework import CLOSED
from hyperplane.clusters.spark.cluster import OwnedSparkCluster
from hyperplane.clusters.spark.local.engine import LocalSparkEngine
from hyperplane.core.optional import is_installed
from hyperplane.errors import EngineUnavailable, RequestError
from hyperplane.spark import init_spark, stop_spark

WORKER = r"spark-worker-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
SMALL: dict[str, Any] = {
    "num_executors": 1,
    "executor_cores": 1,
    "executor_memory": "512m",
    "configs": PROPERTIES,
}


@pytest.fixture
def usable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark counts as installed, for requests that are refused before anything starts."""
    monkeypatch.setattr("hyperplane.clusters.spark.installation.find_problem", lambda: "")


def test_the_first_arguments_are_those_of_raydp() -> None:
    assert list(inspect.signature(init_spark).parameters) == [
        "app_name", "num_executors", "executor_cores", "executor_memory", "configs",
        "ray_cluster",
    ]  # fmt: skip


def test_all_faults_are_reported_without_values_of_properties() -> None:
    properties = {"a": "hidden", "spark.master": "hidden", "spark.x": None, "spark.y": "hid\nden"}
    with pytest.raises(RequestError, match="nothing was started") as caught:
        init_spark("", 0, "x", "5", properties)  # type: ignore[arg-type]
    assert [fault.where for fault in caught.value.faults] == [
        "app_name",
        "num_executors",
        "executor_cores",
        "executor_memory",
        "configs['a']",
        "configs['spark.master']",
        "configs['spark.x']",
        "configs['spark.y']",
    ]
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "memory", ["511m", "0g", "1", "1.5g", "g", 10**6, True, None, 1.5, "9" * 30 + "t"]
)
def test_memory_that_is_no_heap_is_refused(memory: Any) -> None:
    with pytest.raises(RequestError, match="executor_memory"):
        init_spark(executor_memory=memory)


@pytest.mark.usefixtures("usable")
def test_executors_that_cannot_fit_are_refused_with_both_sides() -> None:
    cores = os.cpu_count() or 1
    with pytest.raises(RequestError, match="nothing was started") as caught:
        init_spark("big", cores + 1, 2, "4096g")
    first, second = caught.value.faults
    assert (first.where, second.where) == ("num_executors", "executor_memory")
    assert f"{2 * (cores + 1)} cores" in first.asked
    assert re.search(r"\d+ cores? in all", first.allowed)
    assert re.search(r"'4096g': \d.* TB", second.asked)
    assert re.search(r"at most [\d.]+ .B in all", second.allowed)
    assert records.read_all(starting=True) == []


def test_stopping_without_a_session_does_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    stop_spark()
    assert capsys.readouterr().out == ""


@pytest.mark.skipif(is_installed("pyspark"), reason="Spark is installed")
def test_without_spark_the_extra_is_named() -> None:
    usable, reason = LocalSparkEngine().available()
    assert not usable
    assert 'pip install "hyperplane[spark]"' in reason
    with pytest.raises(EngineUnavailable, match=r"hyperplane\[spark\]"):
        init_spark()


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """The lines that the shared cluster has printed."""
    return []


@pytest.fixture(scope="module")
def spark(lines: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with one executor, for the tests below in their order."""
    printed = io.StringIO()
    with temporary_directory(), pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("configuration")
        (folder / "spark-defaults.conf").write_text(
            "spark.sql.session.timeZone UTC\nspark.executor.memory 77g\nspark.site.color green\\"
        )
        (folder / "fairscheduler.xml").write_text("<allocations/>")
        patch.setenv("SPARK_CONF_DIR", str(folder))
        with contextlib.redirect_stdout(printed):
            session = init_spark("shared", **SMALL)
        lines += printed.getvalue().splitlines()
        try:
            yield session
        finally:
            stop_spark()
            assert is_empty(Path(os.environ["TMPDIR"]))
            assert os.environ["SPARK_CONF_DIR"] == str(folder)


@pytest.mark.spark
@pytest.mark.cluster
def test_a_session_is_that_of_pyspark_and_prints_the_lines(spark: Any, lines: list[str]) -> None:
    from pyspark.sql import SparkSession

    assert type(spark) is SparkSession
    assert SparkSession.builder.getOrCreate() is spark
    assert (spark.sparkContext.appName, spark.sparkContext.defaultParallelism) == ("shared", 2)
    patterns = [
        r"👉 Hyperplane: selecting worker node pool",
        r"spark dashboard available at http://127\.0\.0\.1:\d+",
        rf"Waiting for worker {WORKER}\.\.\.",
    ]
    assert len(lines) == len(patterns), lines
    for line, pattern in zip(lines, patterns, strict=True):
        assert re.fullmatch(pattern, line), line
    assert spark.range(100).selectExpr("sum(id)").first()[0] == 4950


@pytest.mark.spark
@pytest.mark.cluster
def test_properties_of_the_user_remain_below_those_of_the_cluster(spark: Any) -> None:
    found = dict(spark.sparkContext.getConf().getAll())
    assert found["spark.sql.session.timeZone"] == "UTC"
    assert found["spark.site.color"] == "green"
    assert found["spark.executor.memory"] == "512m"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert (
        Path(os.environ["SPARK_CONF_DIR"]) / "fairscheduler.xml"
    ).read_text() == "<allocations/>"


@pytest.mark.spark
@pytest.mark.cluster
def test_programs_with_rdds_run(spark: Any) -> None:
    lines_of_text = spark.sparkContext.parallelize(["a b a", "b a"], 2)
    words = lines_of_text.flatMap(str.split).map(lambda word: (word, 1))
    assert sorted(words.reduceByKey(lambda a, b: a + b).collect()) == [("a", 3), ("b", 2)]


@pytest.mark.spark
@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore:.* loads all data into the driver's memory")
@pytest.mark.filterwarnings("ignore:distutils Version classes:DeprecationWarning")
def test_pyspark_pandas_runs_with_numpy_2_here_and_on_executors(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYARROW_IGNORE_TIMEZONE", "1")  # otherwise the module sets it, and warns
    import pyspark.pandas as ps

    frame = ps.DataFrame({"carrier": ["UA", "AA", None], "delay": [30.0, np.nan, 12.0]})
    assert frame.groupby("carrier")["delay"].max().to_dict() == {
        "UA": 30.0,
        "AA": pytest.approx(np.nan, nan_ok=True),
    }
    # Python of the executors imports the module, too.
    assert frame["carrier"].str.match("U").to_list() == [True, False, None]
    assert frame.fillna({"delay": 0.0})["delay"].apply(lambda n: n + 1).to_list() == [31, 1, 13]
    assert spark.range(3).pandas_api()["id"].sum() == 3


@pytest.mark.spark
@pytest.mark.cluster
def test_a_wrong_parameter_of_a_model_is_a_type_error_with_numpy_2() -> None:
    from pyspark.ml.feature import VectorAssembler

    with pytest.raises(TypeError, match="inputCols"):
        VectorAssembler(inputCols=[1], outputCol="features")  # type: ignore[list-item]


@pytest.mark.spark
@pytest.mark.cluster
def test_spark_submit_and_spark_conf_need_no_address(spark: Any, tmp_path: Path) -> None:
    [cluster] = OwnedSparkCluster.running.values()
    spark.stop()  # its executors are free for another program
    program = tmp_path / "my_spark_job.py"
    program.write_text(
        "import sys\nfrom pyspark import SparkConf, SparkContext\n"
        "context = SparkContext(conf=SparkConf().setAppName('mine'))\n"
        "total = context.parallelize(range(10)).sum()\n"
        "import warnings\nwarnings.simplefilter('ignore')\nimport pyspark.pandas as ps\n"
        "delay = ps.Series([1, 2]).apply(lambda n: n + 1).sum()\n"
        "print(context.master, context.appName, total, sys.argv[1], delay)\n"
    )
    command = Path(os.environ["SPARK_HOME"]) / "bin" / "spark-submit"
    done = subprocess.run(
        [command, program, "argument"], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.stdout.split() == [cluster.address, "mine", "45", "argument", "5"], done.stderr
    # A plain session of this process uses the cluster again.
    from pyspark.sql import SparkSession

    again = SparkSession.builder.getOrCreate()
    assert again.sparkContext.master == cluster.address
    assert again.range(3).count() == 3


@pytest.mark.spark
@pytest.mark.cluster
def test_a_second_call_replaces_the_session_and_its_cluster(
    spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    del spark
    [first] = OwnedSparkCluster.running.values()
    names = list(first.workers)
    second = init_spark("second", **SMALL)
    out = capsys.readouterr().out.splitlines()
    assert out[: len(names)] == [f"Deleting {name}" for name in names]
    assert first.status == CLOSED
    [cluster] = OwnedSparkCluster.running.values()
    assert second.sparkContext.master == cluster.address != first.address
    client, found = hyperplane.get_cluster(cluster.name)
    assert found is cluster
    assert client.spark.sparkContext is second.sparkContext


@pytest.mark.spark
@pytest.mark.cluster
def test_stopping_leaves_no_process_port_or_folder(spark: Any) -> None:
    del spark
    [cluster] = OwnedSparkCluster.running.values()
    program = psutil.Process(cluster.program_pid)
    every = program.children(recursive=True)
    every += [each for each in psutil.Process().children() if each.name() == "java"]
    assert len(every) >= 4  # the master, the worker, its executor and the driver
    ports = [int(url.rpartition(":")[2]) for url in (cluster.address, cluster.dashboard)]
    stop_spark()
    assert not any(process.is_running() for process in (program, *every))
    assert is_empty(Path(os.environ["TMPDIR"]))
    for port in ports:
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind(("127.0.0.1", port))


@pytest.mark.spark
@pytest.mark.cluster
def test_an_idle_session_ends_with_its_cluster_but_not_during_a_job() -> None:
    def wait(_: int) -> float:
        import time

        time.sleep(11)
        return time.time()

    with dask.config.set({"hyperplane.engines.spark_local.idle_timeout": "8s"}):
        session = init_spark("idle", **SMALL)
    [cluster] = OwnedSparkCluster.running.values()
    driver = psutil.Process(session.sparkContext._gateway.proc.pid)
    [ended] = session.sparkContext.parallelize([0], 1).map(wait).collect()
    until(lambda: cluster.status == CLOSED and not driver.is_running())
    assert cluster.end_reason == "the idle timeout has passed"
    assert time.time() - ended > 8
    until(lambda: records.read_all(starting=True) == [])


@pytest.mark.spark
@pytest.mark.cluster
@pytest.mark.slow
def test_a_session_of_another_cluster_is_refused() -> None:
    code = (
        "from pyspark.sql import SparkSession\nfrom hyperplane.spark import init_spark\n"
        "SparkSession.builder.master('local[1]').getOrCreate()\n"
        "try:\n    init_spark()\nexcept Exception as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=280, check=False
    )
    assert "local[1]" in done.stdout, done.stderr
    assert "SparkSession.stop()" in done.stdout
