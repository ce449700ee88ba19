"""``hyperplane doctor``: its checks and exit codes."""

from __future__ import annotations

import os
import tempfile
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import dask.config
import psutil
import pytest
from terminal import Answer, Run

import hyperplane
from hyperplane.cli import doctor_checks
from hyperplane.clusters import records, registry
from hyperplane.clusters.dask.local.engine import LocalEngine
from hyperplane.clusters.engine import Availability
from hyperplane.core.errors import ConfigError
from hyperplane.platforms.local import machine


class AbsentEngine(LocalEngine):
    """An engine that cannot be used here."""

    def available(self) -> Availability:
        return Availability(False, "its program is not installed: [see its page]")


class UnconfiguredEngine(LocalEngine):
    """An engine that reads an invalid setting."""

    def available(self) -> Availability:
        raise ConfigError([])


def finding(answer: Answer, subject: str) -> dict[str, str]:
    (found,) = [entry for entry in answer.json["findings"] if entry["subject"] == subject]
    return found


def test_a_machine_without_problems(run: Run, place: Path) -> None:
    answer = run("doctor", "--json")
    assert answer.code == 0
    assert answer.json["good"] is True
    assert answer.json["faults"] == []
    states = {entry["subject"]: entry["state"] for entry in answer.json["findings"]}
    for subject in ("cores", "memory", "spill folder", "engine local", "configuration", "clusters"):
        assert states.pop(subject) in {"ok", "warning"}
    for package in ("dask", "distributed", "pandas", "pyarrow", "numpy", "pydantic"):
        found = finding(answer, package)
        assert found["text"].split()[0] == metadata.version(package)
        assert found["state"] == "ok"
    assert finding(answer, "hyperplane")["text"] == hyperplane.__version__
    assert finding(answer, "cores")["text"].startswith(f"{machine.cores()} of ")
    assert finding(answer, "memory policy")["text"] == str(hyperplane.MemoryPolicy())
    assert finding(answer, "clusters")["text"] == "no cluster is running"
    assert list(place.iterdir()) == [], "looking has left something behind"


def test_the_table_has_every_finding_within_80_columns(run: Run) -> None:
    findings = run("doctor", "--json").json["findings"]
    answer = run("doctor")
    assert answer.code == 0
    assert max(map(len, answer.out.splitlines())) <= 80
    for entry in findings:
        # The other texts may change between the two calls.
        if entry["subject"] not in {"memory", "spill folder", "default cluster"}:
            assert f"{entry['state']} {entry['subject']} {entry['text']}" in answer.text
    assert "0 wrong" in answer.text


def test_versions_are_compared_with_the_metadata_of_the_package(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = metadata.version
    old = {"distributed": "2024.1.0"}
    monkeypatch.setattr(metadata, "version", lambda name: old.get(name) or real(name))
    answer = run("doctor", "--json")
    assert answer.code == 1
    assert answer.json["good"] is False
    found = finding(answer, "distributed")
    (needs,) = [
        line.removeprefix("distributed")
        for line in metadata.requires("hyperplane") or ()
        if line.startswith("distributed")
    ]
    assert found["state"] == "wrong"
    assert found["text"] == f"2024.1.0 (hyperplane needs {needs})"
    assert found["advice"] == f"pip install --upgrade 'distributed{needs}'"
    shown = run("doctor")
    assert "1 wrong" in shown.text
    assert found["advice"] in shown.text


def test_a_missing_package_is_reported_as_wrong(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.version

    def version(name: str) -> str:
        if name == "pyarrow":
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)
    answer = run("doctor", "--json")
    assert answer.code == 1
    assert finding(answer, "pyarrow")["text"] == "not installed"


def test_every_fault_of_the_configuration_is_reported_with_exit_code_2(run: Run) -> None:
    faulty = {"hyperplane.memory.pause": 2, "hyperplane.engines.local.reserve_fraction": -1}
    with dask.config.set(faulty):
        answer, shown = run("doctor", "--json"), run("doctor")
    assert answer.code == shown.code == 2
    assert {fault["where"] for fault in answer.json["faults"]} == set(faulty)
    wrong = [entry["text"] for entry in answer.json["findings"] if entry["state"] == "wrong"]
    assert len(wrong) == 2
    for text in wrong:
        assert text in shown.text


def test_a_spill_folder_in_memory_is_a_warning(run: Run) -> None:
    shared = Path("/dev/shm")
    if not shared.is_dir() or not os.access(shared, os.W_OK):
        pytest.skip("this machine has no file system in memory")
    with (
        tempfile.TemporaryDirectory(dir=shared) as folder,
        dask.config.set({"temporary-directory": folder}),
    ):
        answer = run("doctor", "--json")
        assert list(Path(folder).iterdir()) == []
    assert answer.code == 0
    found = finding(answer, "spill folder")
    assert found["state"] == "warning"
    assert "tmpfs, which is in memory" in found["text"]
    assert "temporary-directory" in found["advice"]


def test_the_file_system_is_that_of_the_innermost_mount(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mounted(*args: object, **kwargs: object) -> list[SimpleNamespace]:
        mounts = [("/", "overlay"), (str(place), "ext4"), (str(place), "tmpfs"), ("/x", "nfs")]
        return [SimpleNamespace(mountpoint=where, fstype=kind) for where, kind in mounts]

    monkeypatch.setattr(psutil, "disk_partitions", mounted)
    assert _spill_text().endswith("tmpfs, which is in memory: spilling to it frees no memory")
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: mounted()[:1])  # noqa: A006
    assert _spill_text().endswith(", overlay")


def _spill_text() -> str:
    (found,) = doctor_checks.check_spill_folder()
    return found.text


def test_a_full_disk_is_a_warning(run: Run) -> None:
    with dask.config.set({"hyperplane.engines.local.reserve_disk_gb": 1e9}):
        answer = run("doctor", "--json")
    assert answer.code == 0
    found = finding(answer, "spill folder")
    assert found["state"] == "warning"
    assert "workers cannot spill" in found["text"]


def test_an_invalid_spill_folder_is_reported_as_wrong(run: Run, place: Path) -> None:
    (place / "file").touch()
    with dask.config.set({"temporary-directory": str(place / "file")}):
        answer = run("doctor", "--json")
    assert answer.code == 1
    assert finding(answer, "spill folder")["state"] == "wrong"


def test_an_unreadable_list_of_clusters_is_reported_as_wrong(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable() -> list[Path]:
        raise PermissionError(13, "Permission denied", "/tmp/hyperplane-1000")

    monkeypatch.setattr(records, "record_folders", unreadable)
    answer = run("doctor", "--json")
    assert answer.code == 1
    assert finding(answer, "clusters")["state"] == "wrong"


def test_a_folder_that_others_can_write_to_is_ignored(run: Run) -> None:
    records.private_folder().parent.chmod(0o777)
    answer = run("doctor", "--json")
    assert finding(answer, "clusters")["state"] == "ok"
    assert finding(answer, "spill folder")["state"] != "wrong"


def test_files_of_a_dead_cluster_are_removed_and_reported(run: Run, place: Path) -> None:
    scratch = records.private_folder() / "dead"
    scratch.mkdir()
    dead = records.ClusterRecord(
        "dead", "local", "tcp://x:1", "", 2**22 + 1, 1.0, 1, 1, 1.0, str(scratch)
    )
    records.write(dead)
    answer = run("doctor", "--json")
    assert answer.code == 0
    assert "1 cluster that died" in finding(answer, "leftovers")["text"]
    assert not scratch.exists()
    assert list(place.iterdir()) == []


def test_a_missing_engine_is_an_error_only_if_none_is_usable(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry.ENGINES.built_in, "absent", f"{__name__}:AbsentEngine")
    monkeypatch.setitem(registry.ENGINES.built_in, "broken", "hyperplane.no_such_module:Engine")
    unconfigured = f"{__name__}:UnconfiguredEngine"
    monkeypatch.setitem(registry.ENGINES.built_in, "unconfigured", unconfigured)
    answer = run("doctor", "--json")
    assert answer.code == 0
    assert finding(answer, "engine absent")["state"] == "off"
    assert finding(answer, "engine unconfigured")["text"] == "its settings are invalid"
    assert "ModuleNotFoundError" in finding(answer, "engine broken")["text"]
    assert "its program is not installed: [see its page]" in run("doctor").text
    with dask.config.set({"hyperplane.engines.auto": ["absent"]}):
        answer = run("doctor", "--json")
    assert answer.code == 1
    assert finding(answer, "default cluster")["state"] == "wrong"


def test_an_unconfigured_engine_is_off_with_the_setting_to_set(run: Run) -> None:
    def of_ssh() -> dict[str, str]:
        return dict(finding(run("doctor", "--json"), "engine ssh"))

    assert of_ssh()["state"] == "off"
    assert "hyperplane.engines.ssh.hosts is not set" in of_ssh()["text"]
    with dask.config.set({"hyperplane.engines.ssh.hosts": ["a"]}):
        assert of_ssh()["state"] == "ok"
    with dask.config.set({"hyperplane.engines.ssh.port": "x"}):  # reported as a configuration fault
        assert of_ssh()["state"] == "ok"
