"""Private names of distributed: who removes the folders of ended workers and of shuffles.

Dask removes both in the event loop of the nanny and of the worker. If the files are still being
written to a slow disk, that takes as long as the disk: a minute was measured for one gigabyte. The
nannies of a cluster on this machine share the event loop of the scheduler, which is then silent.

Nannies and workers without this package receive this module by value, so it imports no other module
of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import locket
from distributed.diskutils import DIR_LOCK_EXT
from distributed.shuffle._buffer import ShardsBuffer
from distributed.shuffle._disk import DiskShardsBuffer

#: Attribute of a function with the function of Dask instead of which it is called. A plugin that is
#: registered again is set up again, without a teardown, and may have another copy of this module.
_ORIGINAL = "hyperplane_original"
#: Seconds to wait for another worker that removes a folder; two removals at the same time would log
#: errors about files that are already removed.
_LOCK_SECONDS = 1.0


def replace_folder_removal(nanny: Any, remove: Callable[[str], None]) -> None:
    """Call `remove` with the folder of each worker process that ends, instead of removing it.

    A second call replaces the first one.
    """
    instantiate = _find_original(nanny.instantiate)

    async def instantiate_and_replace() -> Any:
        status = await instantiate()
        _replace_in_process(nanny.process, remove)
        return status

    setattr(instantiate_and_replace, _ORIGINAL, instantiate)
    nanny.instantiate = instantiate_and_replace
    _replace_in_process(nanny.process, remove)


def _replace_in_process(process: Any, remove: Callable[[str], None]) -> None:
    if process is None:
        return
    mark_stopped = _find_original(process.mark_stopped)

    def mark_stopped_and_remove() -> None:
        folder, process.worker_dir = process.worker_dir, None
        mark_stopped()
        if folder:
            remove(folder)

    setattr(mark_stopped_and_remove, _ORIGINAL, mark_stopped)
    process.mark_stopped = mark_stopped_and_remove


def restore_folder_removal(nanny: Any) -> None:
    """Undo :func:`replace_folder_removal`."""
    nanny.instantiate = _find_original(nanny.instantiate)
    if nanny.process is not None:
        nanny.process.mark_stopped = _find_original(nanny.process.mark_stopped)


def _find_original(function: Any) -> Any:
    """Return the function of Dask that a function of this module, or of a copy of it, calls."""
    return getattr(function, _ORIGINAL, function)


def remove_worker_folder(folder: str) -> None:
    """Remove the folder of an ended worker; errors are ignored, as Dask does.

    The lock of the folder is held meanwhile, because each worker that starts removes the folders
    whose lock is free. If this process ends before, the next worker does so.
    """
    with contextlib.ExitStack() as stack:
        # Without the lock, too, as Dask does: the worker has ended, but a process that it has
        # forked and that outlives it has its lock. Some disks have no locks of files.
        with contextlib.suppress(locket.LockError, OSError):
            stack.enter_context(locket.lock_file(folder + DIR_LOCK_EXT, timeout=_LOCK_SECONDS))
        shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        Path(folder + DIR_LOCK_EXT).unlink()


async def _close_buffer(buffer: DiskShardsBuffer) -> None:
    """Do what ``DiskShardsBuffer.close`` does, and remove the folder in a thread."""
    await ShardsBuffer.close(buffer)

    def remove() -> None:
        with buffer._directory_lock.write():
            buffer._closed = True
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(buffer.directory)

    await asyncio.to_thread(remove)


def remove_shuffle_folders_in_threads() -> None:
    """Make the shuffles of this process remove their folders in threads."""
    DiskShardsBuffer.close = _close_buffer  # type: ignore[method-assign, assignment]
