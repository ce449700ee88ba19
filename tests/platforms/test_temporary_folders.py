"""Private temporary folders of processes, and those that ended processes have left."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hyperplane.platforms.local import private_folders
from hyperplane.platforms.local.temporary_folders import TemporaryFolder, remove_leftovers

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="has no fork and no locks of folders")


def test_a_folder_is_private_and_is_removed_with_its_object(tmp_path: Path) -> None:
    parent = tmp_path / "missing"
    first, second = TemporaryFolder(str(parent)), TemporaryFolder(str(parent))
    (first.path / "file").touch()
    assert first.path != second.path
    assert first.path.stat().st_mode & 0o077 == 0
    removed = first.path
    del first
    gc.collect()
    assert (removed.exists(), second.path.is_dir()) == (False, True)
    del second
    gc.collect()
    assert list(parent.iterdir()) == []


@pytest.mark.process
def test_folders_of_ended_processes_are_removed(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    folder = private_folders.private_folder(str(tmp_path))
    left, own = folder / f"_p{gone.pid}-0", folder / f"_p{os.getpid()}-999999"
    others = [folder / f"_p{gone.pid}-0.txt", folder / "cluster"]
    for each in (left, own, *others):
        each.mkdir()
    (left / "file").touch()
    remove_leftovers(str(tmp_path))
    assert not left.exists()
    assert all(each.is_dir() for each in (own, *others))


@POSIX
def test_folders_of_another_system_are_removed_unless_they_are_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = private_folders.running_system()
    monkeypatch.setattr(private_folders, "running_system", lambda: f"{running}-other")
    private_folders._system_name.cache_clear()
    try:
        used = TemporaryFolder(str(tmp_path))
        left = used.path.with_name("_p1-0")
        left.mkdir()
    finally:
        monkeypatch.undo()
        private_folders._system_name.cache_clear()
    remove_leftovers(str(tmp_path))
    assert (used.path.is_dir(), left.exists()) == (True, False)
    path = used.path
    del used
    gc.collect()
    assert not path.exists()


@POSIX
@pytest.mark.process
def test_the_end_of_a_fork_keeps_the_folder_of_its_parent(tmp_path: Path) -> None:
    program = """
import os, sys
from hyperplane.platforms.local.temporary_folders import TemporaryFolder
folder = TemporaryFolder(sys.argv[1])
child = os.fork()
if child == 0:
    del folder
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
print(folder.path.is_dir())
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "True\n"
    assert list(tmp_path.iterdir()) == []
