"""Folders with the records of clusters, in the presence of a hostile user."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from users import OTHER, as_other_user, shared_folder

from hyperplane.clusters import record_folders, records
from hyperplane.platforms.local import private_folders


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary directory that all users can write to."""
    with shared_folder() as folder:
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        monkeypatch.delenv("XDG_STATE_HOME", raising=False)
        yield folder


def record(name: str) -> records.ClusterRecord:
    started = records.own_start_time()
    entry = records.ClusterRecord(name, "local", "tcp://x:1", "", os.getpid(), started, 1, 1, 1.0)
    found = records.reserve(entry, None)
    records.write(found)
    return found


@pytest.mark.process
@pytest.mark.parametrize("what", ["folder", "link to the victim's own", "file", "many"])
def test_another_user_cannot_keep_a_user_from_starting_clusters(shared: Path, what: str) -> None:
    usual = shared / f"hyperplane-{OTHER}"
    own = shared / "own"
    own.mkdir()
    os.chown(own, OTHER, OTHER) if os.getuid() == 0 else None
    (own / "precious").touch()
    if what in ("folder", "many"):
        usual.mkdir()
        usual.chmod(0o777)
        planted = records.ClusterRecord(
            "x", "local", "tcp://x:1", "", 2**22 + 1, 1.0, 1, 1, 1.0, str(own)
        )
        (usual / "planted.json").write_text(json.dumps(asdict(planted)))
        (usual / "planted.json").chmod(0o666)
    elif what == "file":
        usual.touch(0o666)
    else:
        usual.symlink_to(own)
    if what == "many":
        for number in range(20):
            other = shared / f"hyperplane-{OTHER}-{number}"
            other.mkdir()
            other.chmod(0o777)

    def work() -> list[object]:
        record("mine")
        folder = private_folders.private_folder()
        again = private_folders.private_folder()
        listed = [found.name for found in records.read_all()]
        mode = stat.S_IMODE(folder.stat().st_mode)
        above = folder.parent
        modes = oct(mode), oct(stat.S_IMODE(above.stat().st_mode))
        return [listed, folder == again, above.parent == shared, folder.stat().st_uid, modes]

    assert as_other_user(work) == str([["mine"], True, True, OTHER, ("0o700", "0o700")])
    assert (own / "precious").exists()


@pytest.mark.process
def test_the_home_of_another_user_is_left_alone(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As with sudo and the HOME of another user.
    monkeypatch.setenv("HOME", str(tmp_path))
    tmp_path.chmod(0o777)
    said = as_other_user(lambda: record_folders.record_folder().parents[1])
    assert said == str(shared)
    assert list(tmp_path.iterdir()) == []


def test_clusters_are_listed_in_the_home_directory(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    found = record("mine")
    (file,) = tmp_path.rglob("mine.json")
    assert file.parents[1] == tmp_path / ".local" / "state" / "hyperplane" / "clusters"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    # Large files, and sockets, whose paths must be short, are still there.
    assert Path(found.scratch).parents[2] == shared
    assert records.process_folder().parents[2] == shared
    records.remove(found.name, found.scratch)
    records.remove_process_folder()
    assert records.read_all() == []
    assert list(shared.iterdir()) == []
    assert not file.parent.parent.exists()


def test_clusters_of_an_earlier_version_are_found(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    old = private_folders.private_folder()
    before = records.ClusterRecord(
        "old", "local", "tcp://x:1", "", os.getpid(), records.own_start_time(), 1, 1, 1.0,
        scratch=str(old / "old"),
    )  # fmt: skip
    (old / "old.json").write_text(json.dumps(asdict(before)))
    assert [found.name for found in records.read_all()] == ["old"]
    with pytest.raises(FileExistsError, match="'old' is already running"):
        record("old")
    record("new")
    assert {found.name for found in records.read_all()} == {"old", "new"}
    for name in ("old", "new"):
        records.remove(name, str(old / name))
    assert records.read_all() == []
    assert list(shared.iterdir()) == []


def test_without_a_home_the_folder_of_the_session_is_next(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
    runtime = tmp_path / "runtime"
    runtime.mkdir(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert record_folders.record_folder().is_relative_to(runtime)
    runtime.chmod(0o777)
    assert record_folders.record_folder() == private_folders.private_folder()
    monkeypatch.setenv("XDG_RUNTIME_DIR", "relative")
    assert record_folders.record_folder() == private_folders.private_folder()


def test_a_temporary_directory_of_ones_own_keeps_programs_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert record_folders.record_folder().parent == tmp_path / f"hyperplane-{os.getuid()}"
    assert record_folders.record_folders() == [record_folders.record_folder()]
    assert list((tmp_path / "home").iterdir()) == []
