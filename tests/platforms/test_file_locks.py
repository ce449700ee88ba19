"""Locks on files and folders, which end with the process that holds them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hyperplane.platforms.local import file_locks


def test_an_exclusive_lock_is_seen_and_not_taken_twice(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    assert not file_locks.is_locked(file)  # it does not exist
    with file_locks.exclusive_lock(file):
        assert file_locks.is_locked(file)
        assert file_locks.try_lock(file) is None
    assert not file_locks.is_locked(file)
    opened = file_locks.try_lock(file)
    assert opened is not None
    with opened:
        assert file_locks.is_locked(file)
    assert not file_locks.is_locked(file)


def test_the_lock_of_a_removed_file_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "lock"
    lock = file_locks.fcntl.flock

    def remove_and_lock(descriptor: int, operation: int) -> None:
        file.unlink(missing_ok=True)
        lock(descriptor, operation)

    monkeypatch.setattr(file_locks.fcntl, "flock", remove_and_lock)
    assert file_locks.try_lock(file) is None


@pytest.mark.process
def test_a_lock_lasts_as_long_as_a_process_that_inherited_it(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    with file_locks.exclusive_lock(file) as lock:
        words = [sys.executable, "-c", "input()"]
        child = subprocess.Popen(words, stdin=subprocess.PIPE, pass_fds=[lock.fileno()])
    assert file_locks.is_locked(file)
    child.communicate(b"\n")
    assert not file_locks.is_locked(file)


@pytest.mark.process
def test_a_folder_is_abandoned_when_its_process_ends(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    program = (
        "import sys; from pathlib import Path; from hyperplane.platforms.local import file_locks\n"
        "file_locks.create_locked_folder(Path(sys.argv[1])); print(flush=True); input()"
    )
    user = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert user.stdout is not None
    user.stdout.readline()
    with file_locks.lock_if_abandoned(folder) as gone:
        assert not gone
    user.communicate(b"\n")
    with file_locks.lock_if_abandoned(folder) as gone:
        assert gone


def test_released_locks_leave_a_folder_abandoned(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    file_locks.create_locked_folder(folder)
    assert file_locks.share_lock(folder, folder)  # a second time
    file_locks.release_locks(folder)
    with file_locks.lock_if_abandoned(folder) as gone:
        assert gone
    assert not file_locks.share_lock(tmp_path / "none", tmp_path / "none")
