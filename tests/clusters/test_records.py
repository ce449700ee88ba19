"""Records of clusters: private, written atomically, and removed with their owner."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from containers import Container

from hyperplane.clusters import job_dashboards, records
from hyperplane.platforms.local import temporary_folders


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def record(name: str = "dask-cluster-1", **changes: object) -> records.ClusterRecord:
    entry = records.ClusterRecord(
        name=name,
        engine="local",
        scheduler="tcp://127.0.0.1:1",
        dashboard="http://127.0.0.1:2/status",
        pid=os.getpid(),
        started=records.own_start_time(),
        workers=1,
        threads=2,
        ram_gb=0.5,
    )
    return replace(records.reserve(entry, None), **changes)  # type: ignore[arg-type]


def test_a_written_record_is_read() -> None:
    one, two = record("one"), record("two")
    records.write(one)
    records.write(two)
    assert {found.name for found in records.read_all()} == {"one", "two"}
    assert records.read_all()[0] in (one, two)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
def test_a_full_disk_is_an_error_with_the_path_and_advice() -> None:
    entry = record()
    draft = records.private_folder() / f"{entry.name}.{os.getpid()}"
    draft.symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: '.*dask-cluster-1.json'; free sp"):
        records.write(entry)
    assert not draft.is_symlink()


def test_only_the_owner_can_read_records(tmp_path: Path) -> None:
    records.write(record())
    folder = records.private_folder()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    [file] = folder.glob("*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / "dask-cluster-1").stat().st_mode) == 0o700


def test_a_folder_that_others_can_write_to_is_not_used(tmp_path: Path) -> None:
    planted = record("planted")
    records.write(planted)
    folder = records.private_folder().parent
    folder.chmod(0o777)
    other = records.private_folder().parent
    assert other != folder
    assert other.name.startswith(f"{folder.name}-")
    assert stat.S_IMODE(other.stat().st_mode) == 0o700
    assert records.private_folder().parent == other
    records.write(record("mine"))
    assert [found.name for found in records.read_all()] == ["mine"]


@pytest.mark.parametrize("what", ["link", "file", "pipe", "nothing"])
def test_what_is_no_folder_is_not_used(tmp_path: Path, what: str) -> None:
    folder = records.private_folder().parent
    next(folder.iterdir()).rmdir()
    folder.rmdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if what == "pipe":
        os.mkfifo(folder)
    elif what == "file":
        folder.touch()
    else:
        folder.symlink_to(elsewhere if what == "link" else tmp_path / "nothing")
    only = record("mine")
    records.write(only)
    assert [found.name for found in records.read_all()] == ["mine"]
    assert list(elsewhere.iterdir()) == []
    records.remove(only.name, only.scratch)
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted({"elsewhere", folder.name})


@pytest.mark.process
def test_the_record_and_scratch_folder_of_a_dead_owner_are_removed() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    dead = record("dead", pid=gone.pid)
    (Path(dead.scratch) / "spilled").write_text("data")
    records.write(dead)
    assert records.read_all() == []
    assert not Path(dead.scratch).exists()
    assert not records.private_folder().joinpath("dead.json").exists()


@pytest.mark.process
def test_the_folder_of_a_cluster_is_removed_with_its_process() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    own, other = (
        temporary_folders.create_temporary_folder(),
        temporary_folders.create_temporary_folder(),
    )
    assert own != other
    left = own.with_name(f"_p{gone.pid}-3")
    left.mkdir()
    assert records.read_all() == []
    assert (own.is_dir(), other.is_dir(), left.exists()) == (True, True, False)
    temporary_folders.remove_temporary_folder(own)
    temporary_folders.remove_temporary_folder(other)
    assert not own.parent.exists()


def test_the_scratch_folder_is_removed_before_the_name_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = record("same")
    records.write(first)
    remove_folder = records.shutil.rmtree

    def remove_while_another_starts(path: object, **options: object) -> None:
        with pytest.raises(FileExistsError, match="already running"):
            record("same")
        remove_folder(path, **options)  # type: ignore[arg-type, call-overload]

    monkeypatch.setattr(records.shutil, "rmtree", remove_while_another_starts)
    records.remove("same", first.scratch)
    monkeypatch.undo()


def test_a_process_id_used_again_is_not_the_owner() -> None:
    records.write(record(started=records.own_start_time() - 1000))
    assert records.read_all() == []


def test_a_clock_that_is_set_ends_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    pslinux = pytest.importorskip("psutil._pslinux", exc_type=ImportError)
    records.write(record("now"))
    records.write(record("earlier", started=psutil.Process().create_time()))
    assert {found.name for found in records.read_all()} == {"now", "earlier"}
    boot = psutil.boot_time()
    monkeypatch.setattr(pslinux, "boot_time", lambda: boot + 3600)
    assert [found.name for found in records.read_all()] == ["now"]


def test_an_incomplete_file_is_ignored() -> None:
    records.write(record("whole"))
    (records.private_folder() / "torn.json").write_text('{"name": "to')
    assert [found.name for found in records.read_all()] == ["whole"]


def test_removing_the_last_record_removes_its_folders(tmp_path: Path) -> None:
    only = record()
    records.write(only)
    records.remove(only.name, only.scratch)
    assert list(tmp_path.iterdir()) == []


def test_a_name_is_taken_once() -> None:
    records.write(record("mine"))
    with pytest.raises(FileExistsError, match="'mine' is already running; pass replace=True"):
        record("mine")


@pytest.mark.process
def test_a_cluster_that_starts_is_not_listed_but_found_when_its_owner_dies() -> None:
    starting = record("starting", scheduler="")
    records.write(starting)
    assert records.read_all() == []
    assert Path(starting.scratch).exists()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    records.write(replace(starting, pid=gone.pid))
    assert records.read_all() == []
    assert not Path(starting.scratch).exists()


def test_the_folder_is_made_while_others_remove_it(tmp_path: Path) -> None:
    stop, inside = threading.Event(), records.private_folder()
    (tmp_path / "stays").touch()

    def remove() -> None:
        while not stop.is_set():
            with suppress(OSError):
                os.removedirs(inside)

    others = [threading.Thread(target=remove) for _ in range(2)]
    for each in others:
        each.start()
    try:
        for _ in range(2000):
            records.private_folder()
    finally:
        stop.set()
        for each in others:
            each.join()


def test_a_name_that_another_process_reserves_meanwhile_is_not_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dead = replace(record("shared"), started=1.0)
    records.write(dead)
    running = []
    read = records._read_records

    def and_another_process_takes_the_name() -> list[records.ClusterRecord]:
        found = read()
        if not running:  # between reading the records and removing dead ones
            running.append(dead)
            records.remove(dead.name, dead.scratch)
            running.append(record("shared"))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(records, "_read_records", and_another_process_takes_the_name)
        records.read_all()
    [still] = records._read_records()
    assert still == running[1]
    assert Path(still.scratch).is_dir()


def test_a_stopped_holder_of_the_lock_delays_others_only_briefly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(records, "LOCK_TIMEOUT_SECONDS", 0.2)
    stopped = os.open(records.private_folder(), os.O_RDONLY)
    fcntl.flock(stopped, fcntl.LOCK_EX)
    try:
        assert record("one").name == "one"
    finally:
        os.close(stopped)


@pytest.mark.process
def test_a_process_forked_meanwhile_does_not_keep_the_lock() -> None:
    fcntl = pytest.importorskip("fcntl")
    folder = records.private_folder()
    with records._exclusive_lock():
        child = subprocess.Popen(["sleep", "30"], pass_fds=_open_on(folder))
    try:
        number = os.open(folder, os.O_RDONLY)
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(number)
    finally:
        child.kill()
        child.wait()


def _open_on(folder: Path) -> list[int]:
    """Return the descriptors of this process on a folder."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if os.path.samestat(link.stat(), folder.stat()):
                found.append(int(link.name))
    assert found
    return found


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a place that takes no folders")
def test_a_place_that_takes_no_folders_is_an_error() -> None:
    with pytest.raises(OSError, match="/proc/nope"):
        records.private_folder("/proc/nope")


#: The first process of a container: it executes lines of standard input.
_FIRST = """
import os, subprocess, sys
from pathlib import Path
from hyperplane.clusters import job_dashboards, records
def open_cluster(name, parent=None):
    started = records.own_start_time()
    entry = records.ClusterRecord(name, "local", "tcp://x:1", "", os.getpid(), started, 1, 1, 1)
    entry = records.reserve(entry, parent)
    records.write(entry)
    return Path(entry.scratch), records.process_folder()
def exists(*paths):
    return [Path(path).exists() for path in paths]
def names():
    return sorted(record.name for record in records.read_all(starting=True))
for line in sys.stdin:
    print(repr(eval(line)), flush=True)
"""


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Callable[[], Container]]:
    containers: list[Container] = []

    def make() -> Container:
        containers.append(Container("twin", _FIRST, tmp_path, {"TMPDIR": str(tmp_path)}))
        return containers[-1]

    yield make
    for one in containers:
        one.end()


@pytest.mark.process
def test_containers_that_share_a_disk_remove_only_what_a_dead_one_has_left(
    container: Callable[[], Container], tmp_path: Path
) -> None:
    one, two = container(), container()
    disk = tmp_path / "disk"
    disk.mkdir()
    # Both have the same name and process ID; one spills to another disk.
    for each, parent in ((one, None), (two, str(disk))):
        each.send(f"[str(path) for path in open_cluster('same', {parent!r})]")
    found = [eval(each.heard()) for each in (one, two)]
    paths = [path for each in found for path in each]
    assert len(set(paths)) == 4
    for each in (one, two):
        assert each.ask("names()") == "['same']"
        each.ask("[open_cluster(f'more-{number}') for number in range(3)] and None")
        assert each.ask(f"exists(*{paths!r})") == "[True, True, True, True]"
    assert len(list(tmp_path.rglob("same.json"))) == 2
    # This process is on a third system with another host name.
    assert records.read_all() == []
    assert all(Path(path).exists() for path in paths)
    two.end()
    until = time.monotonic() + 60  # its first process is killed, but not waited for
    while any(Path(path).exists() for path in paths[2:]) and time.monotonic() < until:
        assert one.ask("names()") == "['more-0', 'more-1', 'more-2', 'same']"
    assert [Path(path).exists() for path in paths] == [True, True, False, False]
    assert len(list(tmp_path.rglob("same.json"))) == 1
    one.end()
    until = time.monotonic() + 60
    while len(list(tmp_path.iterdir())) > 1 and time.monotonic() < until:
        assert records.read_all() == []
    assert [path.name for path in tmp_path.iterdir()] == ["disk"]


def test_a_step_reports_its_dashboards_in_the_folder_of_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYPERPLANE_JOB_FOLDER", str(tmp_path / "job"))
    first = record("first")
    records.write(first)  # as in a pod without the folder
    assert job_dashboards.read_dashboards(tmp_path / "job") == []
    (tmp_path / "job").mkdir()
    records.write(first)
    records.write(record("second", dashboard="http://second/status"))
    both = ["http://127.0.0.1:2/status", "http://second/status"]
    assert job_dashboards.read_dashboards(tmp_path / "job") == both
    assert "security" not in "".join(
        file.read_text() for file in (tmp_path / "job").rglob("*.json")
    )
    records.remove("first", first.scratch)
    assert job_dashboards.read_dashboards(tmp_path / "job") == both[1:]
    [file] = (tmp_path / "job").rglob("*.json")
    whole = json.loads(file.read_text())
    for strange in ({**whole, "system": "another-1"}, {**whole, "started": "1"}, [], None):
        file.write_text(json.dumps(strange))
        assert job_dashboards.read_dashboards(tmp_path / "job") == []
