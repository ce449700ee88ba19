"""Private names of distributed: the worker of this process, also outside of its tasks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def find_worker_folder() -> str | None:
    """Return the folder of the worker in this process; None without one, or if there are several.

    ``distributed.get_worker`` only works in tasks, not while results of others are unpickled.
    """
    worker = _find_worker()
    return None if worker is None else str(worker.local_directory)


def find_results_folder() -> str | None:
    """Return the folder for files with results of the worker, as :func:`find_worker_folder`.

    Workers in one process pass results on without copies of them, and the folder of a worker is
    removed when it is closed. Their files are beside their folders.
    """
    worker = _find_worker()
    if worker is None:
        return None
    folder = str(worker.local_directory)
    return str(Path(folder).parent) if worker.address.startswith("inproc://") else folder


def _find_worker() -> Any:
    """Return the worker of this process; None without one, or if there are several."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.get_worker()
    except ValueError:
        pass
    running = [
        worker
        for worker in list(distributed.Worker._instances)
        if worker.status in (distributed.Status.running, distributed.Status.paused)
    ]
    return running[0] if len(running) == 1 else None
