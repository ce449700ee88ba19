"""Programs with a worker of Spark on other machines: checks, folders and variables."""

from __future__ import annotations

import importlib.metadata
import platform
import socket
from pathlib import Path
from typing import Any

import pytest

import hyperplane
from hyperplane import config
from hyperplane.clusters.remote_nodes.worker_program import _create_folder
from hyperplane.clusters.spark import configuration, installation, worker_program
from hyperplane.clusters.spark.worker_program import SparkWorkerProgram, find_machine_fault
from hyperplane.errors import RequestError
from hyperplane.spec.settings import SparkSlurmSettings, SparkSshSettings

HERE = ".".join(platform.python_version_tuple()[:2])


@pytest.fixture
def usable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark 3.5.7 and Java count as installed."""
    monkeypatch.setattr(installation, "find_problem", lambda advice="": "")
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "3.5.7")


@pytest.mark.usefixtures("usable")
def test_other_versions_and_too_little_memory_of_a_machine_are_named_together() -> None:
    assert find_machine_fault({"python": HERE, "pyspark": "3.5.7", "ram": 1}) == ""
    fault = find_machine_fault({"python": "3.1", "pyspark": "3.5.6", "ram": 10**16})
    assert f"it has python {HERE}, but the machine of the master has 3.1" in fault
    assert "it has pyspark 3.5.7, but the machine of the master has 3.5.6" in fault
    assert "its processes need 10 PB together" in fault


def test_a_machine_without_spark_is_not_asked_for_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(installation, "find_problem", lambda advice="": f"no Java{advice}")
    fault = find_machine_fault({"python": "3.1", "pyspark": "3.5.6", "ram": 1})
    assert fault.startswith("no Java; for hosts set java_home in hyperplane.engines.spark_ssh")
    assert "pyspark" not in fault


def test_a_master_that_does_not_answer_is_named() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(
        RuntimeError, match=rf"cannot connect to the master at 127.0.0.1, port {port}"
    ):
        worker_program._check_connection(f"spark://127.0.0.1:{port}")


def test_a_worker_removes_the_folders_that_its_killed_program_has_left(tmp_path: Path) -> None:
    asked = {"local_directory": str(tmp_path / "new"), "worker": "spark-worker-1"}
    first = _create_folder(asked, SparkWorkerProgram())
    (first / "shuffle").write_text("rows")
    other = _create_folder({**asked, "worker": "spark-worker-10"}, SparkWorkerProgram())
    second = _create_folder(asked, SparkWorkerProgram())
    assert {*(tmp_path / "new").iterdir()} == {other, second}
    assert second.stat().st_mode & 0o77 == 0


def test_executors_inherit_a_temporary_folder_of_their_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "with space"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dx=1")
    found = worker_program._build_variables({"secret": "s"}, folder)
    assert found["JAVA_TOOL_OPTIONS"] == f"-Dx=1 '-Djava.io.tmpdir={folder}/tmp'"
    assert {*found.values()} - {"s"} == {found["JAVA_TOOL_OPTIONS"]}


@pytest.mark.parametrize("engine", ["spark:ssh", "spark:slurm"])
def test_connections_are_encrypted_unless_the_settings_say_otherwise(
    engine: str, tmp_path: Path
) -> None:
    def build(**options: Any) -> dict[str, Any]:
        hosts = {"hosts": ["one", "two"]} if engine == "spark:ssh" else {}
        plan = hyperplane.plan_cluster(
            engine=engine, nprocs=1, nthreads=1, ram_gb_per_proc=1,
            engine_options={**hosts, **options},
        )  # fmt: skip
        settings = plan.settings
        assert isinstance(settings, SparkSshSettings | SparkSlurmSettings)
        encrypted = settings.security == "tls"
        return configuration.build_properties(plan, tmp_path, "secret", encrypted, remote=True)

    found = build()
    assert found["spark.authenticate"] is True
    assert found["spark.network.crypto.enabled"] is True
    assert found["spark.network.crypto.saslFallback"] is False
    assert str(tmp_path) not in str(found["spark.executor.defaultJavaOptions"])
    plain = build(security="none")
    assert plain["spark.authenticate"] is True
    assert "spark.network.crypto.enabled" not in plain
    with pytest.raises(RequestError, match="its address, security or size"):
        build(properties={"spark.network.crypto.enabled": False})


def test_settings_are_those_of_the_platform_unless_the_engine_has_its_own() -> None:
    import dask.config

    given = {
        "hyperplane.engines.ssh": {"hosts": ["one"], "local_directory": "/a", "idle_timeout": 7},
        "hyperplane.engines.spark_ssh": {"java_home": "/opt/java"},
        "hyperplane.engines.slurm": {"partition": "short", "memory_margin_gb": 7},
    }
    with dask.config.set(given):
        ssh = config.engine_settings("spark:ssh", SparkSshSettings)
        slurm = config.engine_settings("spark:slurm", SparkSlurmSettings)
    assert (ssh.hosts, ssh.local_directory, ssh.java_home) == (("one",), "/a", "/opt/java")
    assert ssh.idle_timeout != 7
    assert (slurm.partition, slurm.memory_margin_gb) == ("short", 0.5)
