"""Remove the folders of ended workers and of shuffles without stopping an event loop.

Nannies and workers without this package receive this module by value.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from distributed.diagnostics.plugin import NannyPlugin, WorkerPlugin

from hyperplane.core.dask_internals import folders

if TYPE_CHECKING:
    from distributed import Nanny, Worker

#: Seconds between looks for ended threads.
_POLL_SECONDS = 0.02


class WorkerFolders(NannyPlugin):
    """Nanny plugin that removes the folders of ended worker processes in threads."""

    name = "hyperplane-worker-folders"

    def setup(self, nanny: Nanny) -> None:
        """Replace the removal of Dask."""
        self._threads: list[threading.Thread] = []
        folders.replace_folder_removal(nanny, self._remove)

    async def teardown(self, nanny: Nanny) -> None:
        """Wait until the folders are removed; Dask removes that of the last process."""
        folders.restore_folder_removal(nanny)
        # Not in another thread: none can be started while the interpreter ends.
        while any(thread.is_alive() for thread in self._threads):
            await asyncio.sleep(_POLL_SECONDS)

    def _remove(self, folder: str) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(
            target=folders.remove_worker_folder, args=(folder,), name="hyperplane-worker-folders"
        )
        try:
            thread.start()
        except RuntimeError:  # the interpreter ends
            folders.remove_worker_folder(folder)
        else:
            self._threads.append(thread)


class ShuffleFolders(WorkerPlugin):
    """Worker plugin that lets shuffles remove their folders in threads."""

    name = "hyperplane-shuffle-folders"

    def setup(self, worker: Worker) -> None:
        """Replace the removal of Dask in this process."""
        del worker
        folders.remove_shuffle_folders_in_threads()
