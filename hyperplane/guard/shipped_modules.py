"""Plugins that unpack local modules of the program on workers and on the scheduler.

They are pickled by value, because workers may not have this package. This module therefore imports
no other module of it. A worker unpacks when it registers, before its first task, so that workers
that restart or are added later have the modules, too.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin

if TYPE_CHECKING:
    from distributed import Scheduler, Worker

#: Beginning of the names of folders with unpacked modules.
FOLDER_PREFIX = "hyperplane-modules-"


class ModulesOnWorkers(WorkerPlugin):
    """Worker plugin that unpacks modules, and imports them before others of the same names.

    Parameters
    ----------
    archive : bytes
        A zip archive of the modules.
    digest : str
        Digest of its content; the folder has its name.
    """

    name = "hyperplane-modules"

    def __init__(self, archive: bytes, digest: str) -> None:
        self.archive, self.digest = archive, digest

    def setup(self, worker: Worker) -> None:
        """Unpack into the worker's own directory, which is removed when the worker ends."""
        folder = Path(worker.local_directory, f"{FOLDER_PREFIX}{self.digest[:16]}")
        if not folder.exists():
            _unpack(self.archive, folder)
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
        importlib.invalidate_caches()


class ModulesOnScheduler(SchedulerPlugin):
    """Scheduler plugin that unpacks modules, because the scheduler loads graphs.

    Nothing is unpacked if the scheduler can import all of them, as in the process of the program.

    Parameters
    ----------
    archive, digest
        As those of ModulesOnWorkers.
    names : sequence of str
        Names of the modules.
    """

    name = "hyperplane-modules"

    def __init__(self, archive: bytes, digest: str, names: Sequence[str]) -> None:
        self.archive, self.digest, self.names = archive, digest, tuple(names)
        self.folder: Path | None = None

    async def start(self, scheduler: Scheduler) -> None:
        """Unpack into a new temporary directory."""
        if all(importlib.util.find_spec(name) is not None for name in self.names):
            return
        self.folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{self.digest[:16]}-"))
        _unpack(self.archive, self.folder)
        sys.path.append(str(self.folder))
        importlib.invalidate_caches()

    async def close(self) -> None:
        """Remove the directory."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def _unpack(archive: bytes, folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        opened.extractall(folder)  # never outside the folder, whatever the names are
