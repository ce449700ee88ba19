"""Folders of checkpoints on the hosts of workers."""

from __future__ import annotations

import stat
from pathlib import Path

import fsspec
import pytest
from distributed import Client
from fsspec.implementations.memory import MemoryFileSystem

from hyperplane.core.dask_internals import clients
from hyperplane.ml.estimators.checkpoint_folders import (
    find_folder_faults,
    temporary_checkpoints,
)


def test_a_temporary_folder_is_private_and_removed_on_each_host(monkeypatch):
    functions = []

    def record(client, function, *args, **options):
        results = original(client, function, *args, **options)
        functions.append((function.__name__, args[0], list(results)))

    original = clients.run_on_workers
    monkeypatch.setattr(clients, "run_on_workers", record)
    with Client(processes=False, dashboard_address=":0", n_workers=2) as client:
        with temporary_checkpoints(client) as folder:
            assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700
        first, last = functions
        assert first[:2] == ("makedirs", folder)
        assert last[:2] == ("rmtree", folder)
        assert len(first[2]) == len(last[2]) == 1  # both workers are on this host
    assert not Path(folder).exists()
    with pytest.raises(KeyError), temporary_checkpoints(client) as folder:  # it is closed
        raise KeyError
    assert not Path(folder).exists()


class RefusingFileSystem(MemoryFileSystem):
    """A file system that writes nothing."""

    protocol = "refusing"

    def pipe_file(self, path, value, mode="overwrite", **options):
        raise NotImplementedError


def test_a_folder_that_workers_cannot_write_to_is_a_fault(tmp_path):
    fsspec.register_implementation("refusing", RefusingFileSystem, clobber=True)
    (tmp_path / "file").touch()
    with Client(processes=False, dashboard_address=":0", n_workers=2) as client:
        assert find_folder_faults(client, str(tmp_path / "models" / "1")) == []
        assert list((tmp_path / "models" / "1").iterdir()) == []
        [fault] = find_folder_faults(client, str(tmp_path / "file" / "1"))
        assert (fault.where, fault.asked) == ("model_dir", repr(str(tmp_path / "file" / "1")))
        assert "a parent of the path is a file" in fault.allowed
        [fault] = find_folder_faults(client, "unknown://models/1")
        assert "Protocol not known: unknown" in fault.allowed
        [fault] = find_folder_faults(client, "refusing://models/1")
        assert "all workers can write files (NotImplementedError)" in fault.allowed
    assert find_folder_faults(client, str(tmp_path / "file" / "1")) == []  # no worker answers
