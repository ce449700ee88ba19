"""Folders with many files are removed while the event loops of scheduler and worker go on."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE
from typing import Any

import locket
import pytest
from distributed import get_worker
from distributed.diskutils import DIR_LOCK_EXT
from distributed.shuffle._disk import DiskShardsBuffer
from distributed.shuffle._limiter import ResourceLimiter
from small_clusters import SOON, started

from hyperplane.core.dask_internals import folders

#: Seconds after which a removal ends by itself, so that a blocked event loop fails the test.
BLOCKED = 30.0


class SlowRemoval:
    """Removal of folders that waits, as for a slow disk.

    Parameters
    ----------
    remove : callable
        Removes a folder.
    prefix : str
        Beginning of the names of the folders whose removal waits.
    """

    def __init__(self, remove: Callable[..., None], prefix: str) -> None:
        self._remove, self._prefix = remove, prefix
        self.started, self.may_end = threading.Event(), threading.Event()

    def __call__(self, path: Any, *args: Any, **kwargs: Any) -> None:
        if Path(path).name.startswith(self._prefix):
            self.started.set()
            self.may_end.wait(BLOCKED)
        self._remove(path, *args, **kwargs)


def describe_worker() -> tuple[int, str]:
    return os.getpid(), get_worker().local_directory


@pytest.mark.process
def test_a_worker_starts_again_while_its_former_folder_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    removal = SlowRemoval(shutil.rmtree, "worker-")
    with started(nprocs=1) as (client, _):
        pid, folder = client.submit(describe_worker, pure=False).result(SOON)
        monkeypatch.setattr(shutil, "rmtree", removal)
        os.kill(pid, signal.SIGKILL)
        assert removal.started.wait(SOON)
        new_pid, new_folder = client.submit(describe_worker, pure=False).result(SOON)
        assert (new_pid != pid, new_folder != folder) == (True, True)
        assert Path(folder).exists()  # the new worker has not removed it either
        removal.may_end.set()
    assert not Path(folder).exists()
    assert not Path(folder + DIR_LOCK_EXT).exists()


def test_a_folder_is_removed_after_another_process_that_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "_LOCK_SECONDS", SOON)
    folder = tmp_path / "worker-1"
    folder.mkdir()
    removing = threading.Thread(target=folders.remove_worker_folder, args=(str(folder),))
    with locket.lock_file(f"{folder}{DIR_LOCK_EXT}", timeout=0):
        removing.start()
        removing.join(0.3)
        assert folder.exists()
    removing.join(SOON)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_a_folder_is_removed_although_a_child_of_its_worker_has_the_lock(tmp_path: Path) -> None:
    folder = tmp_path / "worker-1"
    folder.mkdir()
    with (tmp_path / f"worker-1{DIR_LOCK_EXT}").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        child = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=PIPE, pass_fds=[file.fileno()]
        )
    with child:  # which has the lock from now on
        folders.remove_worker_folder(str(folder))
        found = list(tmp_path.iterdir())
        child.communicate(b"\n")
    assert found == []


def test_a_worker_goes_on_while_the_folder_of_a_shuffle_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DiskShardsBuffer, "close", DiskShardsBuffer.close)  # restored afterwards
    folders.remove_shuffle_folders_in_threads()
    removal = SlowRemoval(shutil.rmtree, "shuffle-")
    monkeypatch.setattr(shutil, "rmtree", removal)
    folder = tmp_path / "shuffle-1"

    async def close() -> bool:
        buffer: Any = DiskShardsBuffer(
            directory=folder, read=lambda path: ([], 0), memory_limiter=ResourceLimiter(1000)
        )
        await buffer.write({"1": b"rows"})
        closing = asyncio.ensure_future(buffer.close())
        assert await asyncio.to_thread(removal.started.wait, BLOCKED)
        goes_on = folder.exists()
        removal.may_end.set()
        await closing
        with pytest.raises(RuntimeError, match="closed"):
            buffer.read("1")
        return goes_on

    assert asyncio.run(close())
    assert not folder.exists()
