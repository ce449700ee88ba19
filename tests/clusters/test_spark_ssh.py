"""The engine ``spark:ssh`` on real hosts: rows, encryption, replacement, refusals, and ends."""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.config
import psutil
import pytest
from scale import FULL
from services import is_empty, temporary_directory, until
from services_ssh import HostNetwork, network
from spark_properties import PROPERTIES as SHORT_PROPERTIES

import hyperplane
from hyperplane.clusters import records
from hyperplane.clusters.framework import CLOSED
from hyperplane.clusters.spark import installation
from hyperplane.clusters.spark.cluster import OwnedSparkCluster
from hyperplane.clusters.spark.configuration import configuration_folder
from hyperplane.clusters.spark.processes import read_json, read_page
from hyperplane.spark import init_spark, stop_spark

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.slow]
__all__ = ["network"]  # a fixture

ENGINE = "spark:ssh"
#: Host of the clusters of single tests; the shared cluster has the first two.
LAST = 4
PROPERTIES: dict[str, Any] = {**SHORT_PROPERTIES, "spark.sql.shuffle.partitions": 4}
SMALL: dict[str, Any] = {
    "engine": ENGINE,
    "num_workers": 1,
    "nprocs": 1,
    "nthreads": 1,
    "cores_per_worker": 1,
    "ram_gb_per_proc": 0.95,
    "timeout": 280,
}
#: The Ethernet protocol of all frames.
_ALL_FRAMES = 3
#: Runs Python without Java on the host whose address is the first argument of this template.
WITHOUT_JAVA = """#!/bin/sh
case "$SSH_CONNECTION" in
    *" {address} "*) unset JAVA_HOME; PATH=/nowhere; export PATH ;;
esac
exec {python} "$@"
"""


@pytest.fixture(scope="module", autouse=True)
def own_temporary_directory() -> Iterator[None]:
    """One for all tests, because the records of a cluster are there."""
    with temporary_directory():
        yield


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder on the hosts for the files of workers."""
    return tmp_path_factory.mktemp("hosts")


@pytest.fixture(scope="module", autouse=True)
def _hosts(network: HostNetwork, scratch: Path) -> Iterator[None]:
    """The hosts of the section of ssh, which spark:ssh uses, too."""
    section = "hyperplane.engines"
    settings = {f"{section}.ssh.{key}": value for key, value in network.settings().items()}
    own = {f"{section}.spark_ssh.local_directory": str(scratch), f"{section}.auto": ["ssh"]}
    with dask.config.set({**settings, **own}):
        yield
    until(lambda: not network.processes(), 120)
    assert is_empty(scratch)


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """The lines that the start of the shared cluster has printed."""
    return []


@pytest.fixture(scope="module")
def spark(network: HostNetwork, lines: list[str]) -> Iterator[Any]:
    """A session with an executor on each of two hosts, for the tests below in their order."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        session = init_spark("shared", 2, 1, "512m", PROPERTIES)
    lines += printed.getvalue().splitlines()
    try:
        yield session
    finally:
        stop_spark()
    until(lambda: is_empty(Path(os.environ["TMPDIR"])))


@pytest.fixture
def cluster(spark: Any) -> Any:
    """The shared cluster."""
    del spark
    [running] = OwnedSparkCluster.running.values()
    return running


def plan_alone(network: HostNetwork, **options: Any) -> hyperplane.ClusterPlan:
    """A plan for one worker on the last host."""
    options = {"hosts": [network.address(LAST)], "properties": PROPERTIES, **options}
    return hyperplane.plan_cluster(**SMALL, engine_options=options)


def find_java(network: HostNetwork, name: str, *hosts: int) -> list[psutil.Process]:
    """Return the processes of Java on hosts whose main class has a name."""
    found = []
    for process in map(psutil.Process, network.processes(*hosts)):
        with contextlib.suppress(psutil.Error):
            if any(word.endswith(f".{name}") for word in process.cmdline()):
                found.append(process)
    return found


def count_by_remainder(spark: Any, rows: int, pause: float = 0) -> dict[int, int]:
    """Return sums of doubled numbers by their remainder, with Python on executors and a shuffle."""
    from pyspark.sql import functions
    from pyspark.sql.types import LongType

    def double(number: int) -> int:
        import time

        time.sleep(pause)
        return 2 * number

    numbers = spark.range(0, rows, numPartitions=4).repartition(4)
    doubled = numbers.withColumn("doubled", functions.udf(double, LongType())("id"))
    grouped = doubled.groupBy((doubled.id % 7).alias("key")).agg({"doubled": "sum"})
    return {row[0]: row[1] for row in grouped.collect()}


def expect_by_remainder(rows: int) -> dict[int, int]:
    return {key: sum(range(2 * key, 2 * rows, 14)) for key in range(7)}


def test_executors_are_on_the_hosts_and_shuffle_rows(
    spark: Any, cluster: Any, network: HostNetwork, lines: list[str]
) -> None:
    assert lines[1].startswith("spark dashboard available at http://127.0.0.1:")
    assert [line.split()[:3] for line in lines[2:]] == 2 * [["Waiting", "for", "worker"]]
    assert cluster.engine == ENGINE
    assert count_by_remainder(spark, 7000) == expect_by_remainder(7000)
    until(lambda: len(find_java(network, "CoarseGrainedExecutorBackend", 1, 2)) == 2)
    for host in (1, 2):
        [executor] = find_java(network, "CoarseGrainedExecutorBackend", host)
        assert "-Xmx512M" in executor.cmdline()
    assert spark.sparkContext.defaultParallelism == 2
    # The page from which the idle timeout reads the jobs.
    assert spark.sparkContext.uiWebUrl.startswith("http://127.0.0.1:")
    [program] = read_state(cluster)["activeapps"]
    page = read_page(f"{cluster.dashboard}/app/?appId={program['id']}")
    assert f'href="{spark.sparkContext.uiWebUrl}"' in page
    [record] = records.read_all()
    assert (record.engine, record.workers) == (ENGINE, 2)
    assert sorted(record.client["hosts"].values()) == [network.address(1), network.address(2)]


def test_ports_are_at_the_address_of_the_hosts_or_loopback(
    spark: Any, cluster: Any, network: HostNetwork
) -> None:
    for host in (1, 2):
        found = {address for address, _ in network.listening_addresses(host)}
        assert found == {network.address(host), "127.0.0.1"}
    own = cluster.address.rpartition(":")[0].removeprefix("spark://")
    every = [*psutil.Process(cluster.program_pid).children(recursive=True)]
    every += psutil.Process().children(recursive=True)
    found = {
        connection.laddr.ip.removeprefix("::ffff:")
        for process in every
        for connection in read_connections(process)
    }
    assert found == {own, "127.0.0.1"}


def read_connections(process: psutil.Process) -> list[Any]:
    """Return the ports on which a process listens."""
    with contextlib.suppress(psutil.Error):
        found = process.net_connections("inet")
        return [each for each in found if each.status == psutil.CONN_LISTEN]
    return []


def test_the_secret_is_in_no_command_and_in_no_file_of_a_host(
    spark: Any, cluster: Any, scratch: Path
) -> None:
    secret = spark.sparkContext.getConf().get("spark.authenticate.secret")
    assert len(secret) == 64
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            assert secret not in " ".join(process.cmdline())
    files = [file for file in scratch.rglob("*") if file.is_file()]
    assert len(files) > 4
    assert not [file for file in files if secret in file.read_text(errors="replace")]
    assert {folder.stat().st_mode & 0o77 for folder in scratch.iterdir()} == {0}
    assert secret not in repr(cluster) + str(cluster.record)


class Capture:
    """All frames at the link of a host, as bytes.

    Parameters
    ----------
    link : str
        Name of the network interface.
    """

    def __init__(self, link: str) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(_ALL_FRAMES))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 26)
        self._socket.bind((link, 0))
        self._socket.settimeout(0.5)
        self._stop = threading.Event()
        self.frames: list[bytes] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                self.frames.append(self._socket.recv(1 << 17))

    def close(self) -> bytes:
        """End the capture; return the content of all frames."""
        time.sleep(1)
        self._stop.set()
        self._thread.join()
        self._socket.close()
        return b"".join(self.frames)


def capture_rows(spark: Any, network: HostNetwork, host: int) -> tuple[bytes, str, str]:
    """Return what passes a host's link in a job; a text of its rows, and one that is not."""
    in_rows, beside = f"rows{secrets.token_hex(8)}", f"beside{secrets.token_hex(8)}"
    capture = Capture(f"hpssh{network.network}v{host}")
    try:
        with socket.create_connection((network.address(host), 22), 30) as plain:
            plain.sendall(beside.encode())
        rdd = spark.sparkContext.parallelize(range(400), 4)
        pairs = rdd.map(lambda number: (number % 5, f"{in_rows}-{number}"))
        groups = pairs.groupByKey(4).mapValues(list).collect()
    finally:
        content = capture.close()
    assert sorted(len(texts) for _, texts in groups) == 5 * [80]
    return content, in_rows, beside


def test_no_row_passes_the_network_as_plain_text(spark: Any, network: HostNetwork) -> None:
    content, in_rows, beside = capture_rows(spark, network, 1)
    assert beside.encode() in content, "the capture has to see other connections"
    assert len(content) > 20_000
    assert in_rows.encode() not in content


#: Faults of programs that the master refuses: changed properties, by the names of the programs.
REFUSED: dict[str, dict[str, str]] = {
    "wrong-secret": {"spark.authenticate.secret": "0" * 64},
    "no-authentication": {
        "spark.authenticate": "false",
        "spark.network.crypto.enabled": "false",
    },
    "no-encryption": {"spark.network.crypto.enabled": "false"},
}


def test_programs_without_the_secret_or_encryption_are_refused(
    cluster: Any, tmp_path: Path
) -> None:
    programs = {name: start_refused(cluster, tmp_path / name, name) for name in REFUSED}
    try:
        for name, program in programs.items():
            assert program.stderr is not None
            # It would try again for a minute.
            words = ("Failed to connect to master", "Application has been killed")
            found = next((line for line in program.stderr if any(w in line for w in words)), "")
            assert found, name
        state = read_state(cluster)
        names = {each["name"] for each in [*state["activeapps"], *state["completedapps"]]}
        assert names == {"shared"}
    finally:
        for program in programs.values():
            os.killpg(program.pid, signal.SIGKILL)
            program.communicate()


def start_refused(cluster: Any, conf: Path, name: str) -> subprocess.Popen[str]:
    """Start a program with the configuration of a cluster, and with changed properties."""
    conf.mkdir()
    defaults = (cluster.conf / "spark-defaults.conf").read_text().splitlines()
    changed = [f"{key}={value}" for key, value in REFUSED[name].items()]
    (conf / "spark-defaults.conf").write_text("\n".join([*defaults, *changed]))
    code = f"from pyspark import SparkContext; SparkContext(appName={name!r})"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "SPARK_CONF_DIR": str(conf)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def read_state(cluster: Any) -> dict[str, Any]:
    """Return the state of a cluster from the page of its master."""
    state: dict[str, Any] = read_json(f"{cluster.dashboard}/json/")
    return state


def run_meanwhile(spark: Any, kill: Callable[[], None]) -> dict[int, int]:
    """Return the result of a job during which a function is called."""
    found: list[dict[int, int]] = []
    thread = threading.Thread(
        target=lambda: found.append(count_by_remainder(spark, 700, pause=0.01))
    )
    before = set(spark.sparkContext.statusTracker().getActiveJobsIds())
    thread.start()
    until(lambda: set(spark.sparkContext.statusTracker().getActiveJobsIds()) - before)
    time.sleep(1)
    kill()
    thread.join(280)
    return found[0]


def test_a_killed_executor_is_replaced_and_the_rows_are_right(
    spark: Any, network: HostNetwork
) -> None:
    [executor] = find_java(network, "CoarseGrainedExecutorBackend", 2)
    assert run_meanwhile(spark, executor.kill) == expect_by_remainder(700)
    until(lambda: len(find_java(network, "CoarseGrainedExecutorBackend", 2)) == 1)
    assert not executor.is_running()


def test_all_processes_of_a_host_are_replaced(
    spark: Any, cluster: Any, network: HostNetwork, scratch: Path
) -> None:
    [name] = [each for each, host in cluster.record.client["hosts"].items() if host.endswith("12")]
    before = cluster.worker_pids[name]

    def kill() -> None:
        for number in network.processes(2):
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)

    assert run_meanwhile(spark, kill) == expect_by_remainder(700)
    until(lambda: cluster.worker_pids.get(name, before) != before)
    until(lambda: len(find_java(network, "CoarseGrainedExecutorBackend", 2)) == 1)
    # The new worker has removed the folder of the killed one.
    assert len(list(scratch.iterdir())) == 2
    until(lambda: records.read_all()[-1].workers == 2)


def test_nothing_is_left_on_hosts_after_the_program_with_the_connections_is_killed(
    spark: Any, cluster: Any, network: HostNetwork, scratch: Path
) -> None:
    every = [psutil.Process(spark.sparkContext._gateway.proc.pid)]
    every += psutil.Process(cluster.program_pid).children(recursive=True)
    os.kill(cluster.program_pid, signal.SIGKILL)
    until(lambda: cluster.status == CLOSED and not network.processes(1, 2))
    until(lambda: not any(process.is_running() for process in every))
    assert network.listening_ports(1) == network.listening_ports(2) == []
    assert is_empty(scratch)
    assert records.read_all(starting=True) == []


#: Java that writes its arguments to a file.
RECORDING_JAVA = """#!/bin/sh
echo "$@" >> {file}
exec {java} "$@"
"""


def test_faults_of_all_hosts_are_reported_before_anything_starts(
    network: HostNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java, started = tmp_path / "bin" / "java", tmp_path / "started"
    java.parent.mkdir()
    java.write_text(RECORDING_JAVA.format(file=started, java=installation.find_java()))
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    python = tmp_path / "python"
    address = network.address(2)
    python.write_text(WITHOUT_JAVA.format(address=address, python=sys.executable))
    python.chmod(0o755)
    hosts = [network.address(1), address]
    asked = {**SMALL, "num_workers": 2, "ram_gb_per_proc": 5e4}
    plan = hyperplane.plan_cluster(**asked, engine_options={"hosts": hosts, "python": str(python)})
    with pytest.raises(hyperplane.StartFailed, match="2 hosts of 2 cannot be used") as caught:
        hyperplane.start(plan)
    text = str(caught.value)
    assert f"{hosts[0]}: its processes need 50 TB together" in text
    java = f"{hosts[1]}: Java is not installed: install Java 17, on Debian with apt-get install"
    assert java in text
    assert "java_home in hyperplane.engines.spark_ssh" in text
    assert started.read_text().split() == ["-XX:-UsePerfData", "-version"], "no master"
    assert records.read_all(starting=True) == []
    assert not network.processes(1, 2)


def test_an_unreachable_host_and_a_missing_python_are_named(network: HostNetwork) -> None:
    plan = plan_alone(network, hosts=[network.address(9)], connect_timeout=2)
    with pytest.raises(hyperplane.StartFailed, match="1 host of 1 cannot be used"):
        hyperplane.start(plan)
    plan = plan_alone(network, python="/usr/bin/no-python")
    with pytest.raises(hyperplane.StartFailed, match="there is no /usr/bin/no-python"):
        hyperplane.start(plan)
    with pytest.raises(hyperplane.RequestError, match=r"num_executors = 5: expected at most 4"):
        init_spark("large", 5)
    assert records.read_all(starting=True) == []


@pytest.mark.skipif(not FULL, reason="another cluster for one property: at full scale")
def test_the_external_shuffle_service_runs_on_hosts(network: HostNetwork) -> None:
    properties = {**PROPERTIES, "spark.shuffle.service.enabled": True}
    session = init_spark("service", 1, 1, "512m", properties)
    try:
        assert count_by_remainder(session, 700) == expect_by_remainder(700)
        assert 7337 in network.listening_ports(1)
    finally:
        stop_spark()


@pytest.mark.skipif(not FULL, reason="the connections end with the program: at full scale")
def test_nothing_is_left_after_the_owner_is_killed(network: HostNetwork, scratch: Path) -> None:
    code = (
        "import hyperplane, json, sys, time\n"
        "client, cluster = hyperplane.start(hyperplane.plan_cluster(**json.loads(sys.argv[1])))\n"
        "print('ready', client.spark.range(10).count(), cluster.conf, flush=True)\n"
        "time.sleep(600)\n"
    )
    with start_owner(network, code, scratch) as owner:
        assert owner.stdout is not None
        words = owner.stdout.readline().split()
        assert words[:2] == ["ready", "10"]
        every = psutil.Process(owner.pid).children(recursive=True)
        assert len(find_java(network, "CoarseGrainedExecutorBackend", LAST)) == 1
        owner.send_signal(signal.SIGKILL)
    until(lambda: not network.processes(LAST))
    until(lambda: not any(process.is_running() for process in every))
    assert network.listening_ports(LAST) == []
    assert is_empty(scratch)
    assert not Path(words[2]).exists()


def start_owner(network: HostNetwork, code: str, scratch: Path) -> subprocess.Popen[str]:
    """Start a program that starts a cluster on the last host."""
    options = {
        **network.settings(),
        "hosts": [network.address(LAST)],
        "local_directory": str(scratch),
        "properties": PROPERTIES,
    }
    request = json.dumps({**SMALL, "engine_options": options})
    return subprocess.Popen(
        [sys.executable, "-c", code, request], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.skipif(not FULL, reason="test_spark_local.py does it on one machine: at full scale")
def test_another_process_attaches_and_stops_the_cluster(network: HostNetwork) -> None:
    client, cluster = hyperplane.start(plan_alone(network))
    code = (
        "import hyperplane, sys\n"
        f"client, cluster = hyperplane.get_cluster({cluster.name!r})\n"
        "print(client.spark.sparkContext.parallelize(range(4)).map(str).count())\n"
        "client.close()\n"
        "cluster.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=250, check=False
    )
    assert done.stdout.split() == ["4"], done.stderr
    until(lambda: cluster.status == CLOSED)
    client.close()
    until(lambda: not network.processes(LAST))
    assert records.read_all(starting=True) == []


@pytest.mark.skipif(not FULL, reason="it starts one more cluster: at full scale")
def test_a_worker_is_started_again_when_its_host_is_reached(
    network: HostNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    client, cluster = hyperplane.start(plan_alone(network, connect_timeout=2))
    with caplog.at_level("WARNING"):
        network.set_link(LAST, "down")
        [worker] = find_java(network, "Worker", LAST)
        worker.kill()
        # The connection ends after the missing keepalive messages, or with the program.
        until(lambda: "is started again when its host is reached" in caplog.text, 250)
        network.set_link(LAST, "up")
    until(lambda: len(cluster.workers) == 1 and find_java(network, "Worker", LAST), 250)
    assert count_by_remainder(client.spark, 70) == expect_by_remainder(70)
    client.close()
    cluster.close()
    until(lambda: not network.processes(LAST))


@pytest.mark.skipif(not FULL, reason="it starts one more cluster: at full scale")
def test_rows_are_plain_text_without_encryption_and_the_secret_is_still_needed(
    network: HostNetwork,
) -> None:
    client, cluster = hyperplane.start(plan_alone(network, security="none", idle_timeout=40))
    content, in_rows, _ = capture_rows(client.spark, network, LAST)
    assert in_rows.encode() in content
    configuration = dict(client.spark.sparkContext.getConf().getAll())
    assert configuration["spark.authenticate"] == "true"
    assert "spark.network.crypto.enabled" not in configuration
    until(lambda: cluster.status == CLOSED, 250)
    assert cluster.end_reason == "the idle timeout has passed"
    until(lambda: not network.processes(LAST))
    client.close()


@pytest.mark.skipif(not FULL, reason="test_spark.py does it on one machine: at full scale")
def test_a_second_call_replaces_the_cluster(network: HostNetwork) -> None:
    init_spark("first", 1, 1, "512m", PROPERTIES)
    [first] = OwnedSparkCluster.running.values()
    session = init_spark("second", 2, 1, "512m", PROPERTIES)
    assert first.status == CLOSED
    assert not configuration_folder(first.conf.parent).exists()
    assert count_by_remainder(session, 70) == expect_by_remainder(70)
    stop_spark()
    until(lambda: not network.processes())
