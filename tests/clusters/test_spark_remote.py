"""Rules of Spark's engines with other machines, without Spark: variables, properties, checks."""

from __future__ import annotations

import asyncio
import http.server
import os
import sys
import threading
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask.config
import pytest

import hyperplane.spark as sessions
from hyperplane.clusters.remote_nodes import ssh_group
from hyperplane.clusters.remote_nodes.job_script import NAME_PLACEHOLDER, insert_name
from hyperplane.clusters.spark import configuration, driver, processes
from hyperplane.clusters.spark.cluster import OwnedSparkCluster, build_worker_properties
from hyperplane.clusters.spark.slurm.node_group import SlurmSparkNodeGroup
from hyperplane.clusters.spark.ssh.engine import SshSparkEngine
from hyperplane.clusters.spark.ssh.node_group import SshSparkNodeGroup
from hyperplane.errors import EngineError, RequestError
from hyperplane.platforms.ssh.hosts import HostConnectionError
from hyperplane.spec.settings import SparkLocalSettings, SparkSlurmSettings, SparkSshSettings


class TestVariables:
    @pytest.fixture(autouse=True)
    def _restored(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in driver.VARIABLES:
            monkeypatch.delenv(name, raising=False)

    def test_the_python_of_hosts_is_not_that_of_the_driver(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        conf = tmp_path / "conf"
        driver.set_variables(conf, tmp_path, "/opt/python")
        assert os.environ["PYSPARK_PYTHON"] == "/opt/python"
        assert os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
        driver.restore_variables(conf)
        assert "PYSPARK_DRIVER_PYTHON" not in os.environ
        monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "ipython")
        driver.set_variables(conf, tmp_path, "/opt/python")
        assert os.environ["PYSPARK_DRIVER_PYTHON"] == "ipython"
        driver.restore_variables(conf)
        assert os.environ["PYSPARK_DRIVER_PYTHON"] == "ipython"

    def test_a_cluster_of_this_machine_does_not_get_the_python_of_hosts(
        self, tmp_path: Path
    ) -> None:
        remote, local = tmp_path / "remote", tmp_path / "local"
        driver.set_variables(remote, tmp_path, "/opt/python")
        driver.set_variables(local, tmp_path)
        assert os.environ["PYSPARK_PYTHON"] == sys.executable
        assert "PYSPARK_DRIVER_PYTHON" not in os.environ
        driver.restore_variables(local)
        assert os.environ["PYSPARK_PYTHON"] == "/opt/python"
        driver.restore_variables(remote)
        assert "PYSPARK_PYTHON" not in os.environ


def test_the_options_of_the_launcher_of_the_user_are_the_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_LAUNCHER_OPTS", "-Xmx1g")
    for conf in (tmp_path / "1", tmp_path / "2"):  # not repeated for a second cluster
        driver.set_variables(conf, tmp_path)
        assert os.environ["SPARK_LAUNCHER_OPTS"] == "-XX:-UsePerfData -Xmx1g"
    for conf in (tmp_path / "2", tmp_path / "1"):
        driver.restore_variables(conf)
    assert os.environ["SPARK_LAUNCHER_OPTS"] == "-Xmx1g"


FILE = """\
# spark.worker.comment=1
spark.worker.cleanup.enabled   true
spark.shuffle.service.enabled=true
  spark.worker.name : a\\
    b\\u0020c
spark.app.name=hidden
spark.worker.path=C:\\\\x
"""


def test_properties_of_workers_are_those_of_the_file_and_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(FILE)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    settings = SparkSshSettings(
        properties={"spark.worker.cleanup.enabled": False, "spark.sql.shuffle.partitions": 2}
    )
    found = build_worker_properties(settings, tmp_path, encrypted=False)
    assert found == {
        "spark.worker.cleanup.enabled": False,
        "spark.shuffle.service.enabled": "true",
        "spark.worker.name": "ab c",
        "spark.worker.path": "C:\\x",
        "spark.authenticate": True,
    }
    assert configuration.parse_properties(configuration.format_properties(found)) == {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in found.items()
    }
    assert build_worker_properties(settings, tmp_path, True)["spark.network.crypto.enabled"] is True


class BrokenPage(http.server.BaseHTTPRequestHandler):
    """Answers with less than it has announced, or with no line of HTTP."""

    def do_GET(self) -> None:
        if self.path == "/short":
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
        self.wfile.write(b"short")

    def log_message(self, *arguments: Any) -> None:
        """Print nothing."""


@pytest.mark.parametrize("page", ["short", "other"])
def test_a_page_that_breaks_off_is_an_error_of_the_system(page: str) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), BrokenPage) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with pytest.raises(OSError, match=r"IncompleteRead|BadStatusLine"):
                processes.read_page(f"http://127.0.0.1:{server.server_port}/{page}")
        finally:
            server.shutdown()
            thread.join()


class FakeProcess:
    """A program on a host that replies, fails, or ends without a reply."""

    def __init__(self, connections: Any, host: str, argv: list[str], number: int) -> None:
        del connections, argv, number
        self.host, self.log = host, deque([f"line {number}" for number in range(9)])

    async def start(self, configuration: Any) -> None:
        if self.host == "refused":
            raise ConnectionRefusedError(111, "refused")

    async def read_reply(self) -> dict[str, Any]:
        if self.host == "slow":
            raise TimeoutError
        return {} if self.host == "broken" else {"fault": "" if self.host == "good" else "no Java"}

    def explain_failure(self) -> str:
        return ""

    async def end(self) -> None:
        """Do nothing."""


def test_the_checks_of_all_hosts_are_one_error_with_the_last_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ssh_group, "HostProcess", FakeProcess)
    monkeypatch.setattr(
        "hyperplane.clusters.spark.ssh.node_group.read_versions", lambda: {"python": "3"}
    )
    group = SshSparkNodeGroup(lambda **event: None)
    group._connections = SimpleNamespace(settings=SparkSshSettings())  # type: ignore[assignment]
    group._settings = {"java_home": None}
    try:
        hosts = dict.fromkeys(("good", "broken", "refused", "slow", "bare"), 1)
        with pytest.raises(HostConnectionError, match="4 hosts of 5") as caught:
            asyncio.run(group._check_hosts(hosts))
    finally:
        group._loop.close()
    faults = caught.value.faults
    assert faults["broken"].splitlines() == [
        "it did not start",
        *(f"    line {number}" for number in range(4, 9)),
    ]
    assert "no ssh server at port 22" in faults["refused"]
    assert faults["slow"] == "it did not start in 900 s"
    assert faults["bare"] == "no Java"


def test_workers_that_start_together_share_the_queries_of_the_master() -> None:
    queries: list[int] = []

    def find_workers() -> set[tuple[str, int]]:
        queries.append(len(queries))
        return {("host", port) for port in range(20)} if len(queries) > 1 else set()

    group = SshSparkNodeGroup(lambda **event: None)
    group._master = SimpleNamespace(find_workers=find_workers)  # type: ignore[assignment]

    async def start() -> list[str]:
        worker: Any = SimpleNamespace(host="host", is_running=lambda: True)
        starts = (group._complete_start(worker, {"port": port}) for port in range(20))
        return await asyncio.gather(*starts)

    try:
        assert asyncio.run(start()) == 20 * [""]
    finally:
        group._loop.close()
    assert len(queries) == 2


def test_a_job_checks_its_memory_together_with_its_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = "hyperplane.clusters.spark.slurm.node_group.read_versions"
    monkeypatch.setattr(module, lambda: {"python": "3"})
    group = SlurmSparkNodeGroup(lambda **event: None)
    group._settings = {
        "local_directory": None, "ram_per_worker": 7, "secret": "s", "worker_properties": {},
    }  # fmt: skip
    group._master = SimpleNamespace(address="spark://a:1")  # type: ignore[assignment]
    try:
        found = group._configure({"worker": "w", "cores": 1, "memory": "1M"}, "b")
    finally:
        group._loop.close()
    assert found["check"] == {"python": "3", "ram": 7}
    assert "ram" not in found, "it would be checked before, alone"


def test_a_prologue_may_have_the_word_for_the_name_of_a_worker() -> None:
    script = f"export A={NAME_PLACEHOLDER}\nexec program {NAME_PLACEHOLDER}\n"
    assert insert_name(script, "w-1") == f"export A={NAME_PLACEHOLDER}\nexec program w-1\n"


def test_encryption_is_a_property_of_the_user_only_on_one_machine() -> None:
    given: Any = {"spark.network.crypto.enabled": True}
    assert SparkLocalSettings(properties=given).properties == given
    for settings in (SparkSshSettings, SparkSlurmSettings):
        with pytest.raises(ValueError, match=r"crypto\.enabled is its address, secur"):
            settings(properties=given)


class TestRequests:
    @pytest.fixture(autouse=True)
    def _usable(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setattr(
            "hyperplane.clusters.spark.installation.find_problem", lambda advice="": ""
        )
        with dask.config.set({"hyperplane.engines.auto": ["ssh"]}):
            yield

    def test_advice_has_the_names_of_the_arguments(self) -> None:
        with (
            dask.config.set({"hyperplane.engines.ssh.hosts": ["one"]}),
            pytest.raises(RequestError) as caught,
        ):
            sessions.init_spark(num_executors=2)
        [fault] = caught.value.faults
        assert (fault.where, fault.asked) == ("num_executors", "2")
        assert fault.advice.startswith("use num_executors=1, or add hosts")
        with pytest.raises(RequestError) as caught:
            sessions.init_spark()
        [fault] = caught.value.faults
        assert fault.advice == "set it in the configuration"

    def test_encryption_of_hosts_cannot_be_changed(self) -> None:
        with (
            dask.config.set({"hyperplane.engines.ssh.hosts": ["one"]}),
            pytest.raises(RequestError) as caught,
        ):
            sessions.init_spark("a", 1, configs={"spark.network.crypto.enabled": False})
        [fault] = caught.value.faults
        assert fault.where == "configs['spark.network.crypto.enabled']"

    def test_an_error_names_the_chosen_engine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(driver, "find_session_address", lambda: "spark://other:1")
        with pytest.raises(EngineError, match=r"^engine spark:ssh: .*spark://other:1"):
            sessions.init_spark()
        assert sessions._choose_engine().name == SshSparkEngine.name

    def test_memory_on_other_machines_is_not_that_of_this_one(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        running = {
            engine: SimpleNamespace(engine=engine, record=SimpleNamespace(ram_gb=ram))
            for engine, ram in (("spark:local", 2), ("spark:ssh", 30), ("spark:slurm", 40))
        }
        monkeypatch.setattr(OwnedSparkCluster, "running", running)
        assert sessions._find_own_memory() == 2_000_000_000
