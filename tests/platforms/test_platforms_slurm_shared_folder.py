"""Folders and files that a machine shares with the nodes."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from hyperplane.platforms.slurm.shared_folder import (
    find_removable,
    log_folder,
    private_folder,
    remove_empty,
    shared_folder,
    write_private_files,
)
from hyperplane.spec.settings import SlurmSettings


def test_each_machine_has_its_folder_below_the_one_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "login1")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert shared_folder(SlurmSettings()) == tmp_path / "state" / "hyperplane" / "login1"
    settings = SlurmSettings(shared_folder=str(tmp_path / "shared"))
    assert shared_folder(settings) == tmp_path / "shared" / "login1"
    assert private_folder(settings, "mine").is_relative_to(tmp_path / "shared" / "login1")
    assert private_folder(settings, "mine").name == "mine"


def test_logs_are_in_the_folder_of_the_settings_or_else_in_the_default(tmp_path: Path) -> None:
    assert log_folder(SlurmSettings(), tmp_path) == tmp_path
    settings = SlurmSettings(log_folder="~/logs")
    assert log_folder(settings, tmp_path) == Path("~/logs").expanduser()


def test_only_the_user_can_read_private_files(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        write_private_files(tmp_path, {"ca.pem": "a", "key.pem": "b"})
    finally:
        os.umask(previous)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {
        "ca.pem": "a",
        "key.pem": "b",
    }
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}


def test_folders_that_were_created_are_removed_unless_they_are_used(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b" / "c"
    created = find_removable(folder)
    assert created == [folder, folder.parent, folder.parent.parent]
    folder.mkdir(parents=True)
    (folder.parent / "file").touch()
    remove_empty(created)
    assert not folder.exists()
    assert (folder.parent / "file").exists()
    assert find_removable(folder.parent) == [folder.parent]
