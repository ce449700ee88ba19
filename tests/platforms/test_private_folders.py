"""Private folders of this user on machines and in containers that share a disk."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from hyperplane.core.folder_entries import find_in
from hyperplane.platforms.local import private_folders


def test_machines_and_containers_that_share_a_disk_do_not_share_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = []
    for host, system in (("h", "a-1"), ("h", "a-2"), ("h", "b-1"), ("i", "b-1"), ("i", "c-3")):
        monkeypatch.setattr(private_folders.socket, "gethostname", lambda host=host: host)
        monkeypatch.setattr(private_folders, "running_system", lambda system=system: system)
        private_folders._system_name.cache_clear()
        found.append((private_folders.system_folder_name(), private_folders.private_folder()))
    names, folders = zip(*found, strict=True)
    assert len(set(names)) == len(set(folders)) == 5
    # Now as the last one: locks are reliable on the same host, and during the same boot.
    assert private_folders.folders_of_other_systems() == [folders[3]]
    private_folders._system_name.cache_clear()
    monkeypatch.setattr(private_folders, "running_system", lambda: "b-2")
    assert set(private_folders.folders_of_other_systems()) == set(folders[2:])
    private_folders._system_name.cache_clear()


def test_a_folder_that_is_removed_as_it_is_listed_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    real = os.scandir

    def after_removal(path: Any) -> Any:
        folder.rmdir()
        return real(path)

    monkeypatch.setattr(os, "scandir", after_removal)
    assert find_in(folder, "*") == []
