"""The engine ``spark:local`` where Spark, Java or pandas does not suit, or the master fails."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from late_clock import expire_after_first_worker
from services import is_empty, until

import hyperplane
from hyperplane.clusters import records
from hyperplane.clusters.local_nodes import program_process
from hyperplane.clusters.spark import driver, installation
from hyperplane.clusters.spark.local.engine import LocalSparkEngine
from hyperplane.errors import StartFailed, StartTimeout

pytestmark = pytest.mark.process

#: Reports a master and one worker, after lines such as libraries print.
PROGRAM = """
import json, sys
print("3", flush=True)
print('["event"]', flush=True)
started = 0
for line in sys.stdin:
    request = json.loads(line)
    if "folder" in request:
        print(json.dumps({"event": "head", "address": "spark://x:1", "dashboard": ""}), flush=True)
        print(json.dumps({"event": "lost", "name": "another"}), flush=True)
    elif not started:
        started = 1
        event = {"event": "worker", "name": request["worker"], "pid": 1, "host": "127.0.0.1"}
        print(json.dumps(event), flush=True)
"""


def write_java(folder: Path, *lines: str) -> Path:
    """Write a program that prints the version of a Java; return the value of ``JAVA_HOME``."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("\n".join(["#!/bin/sh", *(f"echo '{line}' >&2" for line in lines)]))
    java.chmod(0o755)
    return folder


def write_home(folder: Path, name: str = "spark-core_2.12-3.5.7.jar") -> Path:
    """Write a folder that has the name of a library of Spark; return it as ``SPARK_HOME``."""
    (folder / "jars").mkdir(parents=True)
    (folder / "jars" / name).touch()
    return folder


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment in which Spark can be used, with the numbers of its versions only."""
    versions = {"pyspark": "3.5.7", "pandas": "2.3.3"}
    monkeypatch.setattr(installation, "is_installed", lambda name: True)
    monkeypatch.setattr(importlib.metadata, "version", versions.__getitem__)
    monkeypatch.setattr(installation, "importlib", importlib)
    monkeypatch.setenv("SPARK_HOME", str(write_home(tmp_path / "spark")))
    java = write_java(tmp_path / "java", 'openjdk version "17.0.15" 2025-04-15')
    monkeypatch.setenv("JAVA_HOME", str(java))
    assert installation.find_problem() == ""
    return tmp_path


@pytest.mark.parametrize(
    ("line", "found"),
    [('openjdk version "21.0.2" 2024-01-16', "is Java 21"), ("help", "of an unknown version")],
)
def test_a_java_that_spark_does_not_support_is_named(
    environment: Path, monkeypatch: pytest.MonkeyPatch, line: str, found: str
) -> None:
    home = write_java(environment / "other", line)
    monkeypatch.setenv("JAVA_HOME", str(home))
    problem = installation.find_problem()
    assert problem.startswith(f"JAVA_HOME={home} is Java")
    assert found in problem
    assert "8 or 11 or 17" in problem
    assert "apt-get install openjdk-17-jre-headless" in problem


def test_an_old_java_of_a_supported_version_is_accepted(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = write_java(environment / "old", 'java version "1.8.0_402"')
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert installation.find_problem() == ""


def test_a_missing_java_names_the_package(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(environment / "nothing"))
    assert "does not run" in installation.find_problem()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(environment))
    problem = installation.find_problem()
    assert problem.startswith("Java is not installed: install Java 17, on Debian with apt-get")
    assert LocalSparkEngine().available() == (False, problem)


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    ("versions", "found"),
    [
        ({"pyspark": "4.0.1", "pandas": "2.3.3"}, r"pyspark 4\.0\.1 is installed; expected 3\.5"),
        ({"pyspark": "3.5.7", "pandas": "3.1.1"}, r"pandas 3\.1\.1 .* needs pandas 2"),
    ],
)
def test_other_versions_of_packages_are_named(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], found: str
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", versions.__getitem__)
    with pytest.raises(hyperplane.EngineUnavailable, match=rf"{found}.*hyperplane\[spark\]"):
        hyperplane.initialize_cluster(engine="spark:local")


def test_another_spark_home_is_named(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = write_home(environment / "older", "spark-core_2.13-3.3.2.jar")
    monkeypatch.setenv("SPARK_HOME", str(home))
    assert "has spark-core_2.13-3.3.2; expected version 3.5.7" in installation.find_problem()
    assert installation.find_scala_version(home) == "2.13"
    monkeypatch.setenv("SPARK_HOME", str(environment))
    assert "has no folder jars with Spark" in installation.find_problem()


def make_plan(**others: Any) -> Any:
    return hyperplane.plan_cluster(
        engine="spark:local",
        num_workers=2,
        nprocs=1,
        nthreads=1,
        ram_gb_per_proc=0.95,
        local_fit="exact",
        **{"timeout": 3, **others},
    )


def expect_nothing_left() -> None:
    assert records.read_all(starting=True) == []
    assert is_empty(Path(os.environ["TMPDIR"]))
    assert "SPARK_CONF_DIR" not in os.environ


@pytest.mark.usefixtures("environment")
def test_a_timeout_counts_the_workers_after_unknown_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    monkeypatch.setattr(program_process, "_PROGRAM", str(file))
    expire_after_first_worker(monkeypatch, 100)
    with pytest.raises(StartTimeout, match="1 of 2 workers have started in time"):
        LocalSparkEngine().start(make_plan(timeout=60))
    expect_nothing_left()


@pytest.mark.usefixtures("environment")
def test_a_master_that_ends_is_reported_with_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = write_java(tmp_path / "broken", "Could not reserve enough space")
    monkeypatch.setenv("JAVA_HOME", str(java))
    with pytest.raises(StartFailed, match="the master of the cluster has ended") as caught:
        LocalSparkEngine().start(make_plan(timeout=200))
    assert "Could not reserve enough space" in str(caught.value)
    expect_nothing_left()


@pytest.mark.usefixtures("environment")
def test_nothing_is_left_if_the_program_cannot_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*args: Any, **options: Any) -> Any:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", fail)
    with pytest.raises(StartFailed, match="Resource temporarily unavailable"):
        LocalSparkEngine().start(make_plan())
    expect_nothing_left()


def test_variables_of_several_clusters_are_restored_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/a")
    before = {name: os.environ.get(name) for name in driver.VARIABLES}
    first, second = tmp_path / "1" / "conf", tmp_path / "2" / "conf"
    home = tmp_path / "home"
    driver.set_variables(first, home)
    os.environ["PYTHONPATH"] += ":/added"  # by the program, which keeps it
    driver.set_variables(second, home)
    assert driver.find_former_configuration(home) == home / "conf"
    driver.restore_variables(first)
    assert os.environ["SPARK_CONF_DIR"] == str(second)
    assert os.environ["PYTHONPATH"].endswith(":/a:/added")
    driver.restore_variables(second)
    driver.restore_variables(second)
    assert os.environ["PYTHONPATH"] == "/a:/added"
    assert {name: os.environ.get(name) for name in driver.VARIABLES} == before


def test_a_jvm_whose_start_was_interrupted_is_killed_with_its_children(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    pyspark = {**os.environ, "SPARK_CONF_DIR": str(conf), "_PYSPARK_DRIVER_CONN_INFO_PATH": "x"}
    others = {**pyspark, "SPARK_CONF_DIR": str(tmp_path)}
    program = {name: text for name, text in pyspark.items() if not name.startswith("_PY")}
    started = [
        subprocess.Popen(["sh", "-c", "sleep 60 & wait"], env=each)
        for each in (pyspark, others, program)
    ]
    try:
        until(lambda: all(psutil.Process(each.pid).children() for each in started))
        [below] = psutil.Process(started[0].pid).children()
        driver.disconnect(conf)
        assert [each.poll() is None for each in started] == [False, True, True]
        until(lambda: not below.is_running())
    finally:
        for each in started:
            with suppress(psutil.NoSuchProcess):
                for process in psutil.Process(each.pid).children():
                    process.kill()
            each.kill()
            each.wait()
