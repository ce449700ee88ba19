"""Private names of distributed: the worker of this process, also outside of its tasks."""

from __future__ import annotations

import sys


def find_worker_folder() -> str | None:
    """Return the folder of the worker in this process; None without one, or if there are several.

    ``distributed.get_worker`` only works in tasks, not while results of others are unpickled.
    """
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return str(distributed.get_worker().local_directory)
    except ValueError:
        pass
    running = [
        worker
        for worker in list(distributed.Worker._instances)
        if worker.status in (distributed.Status.running, distributed.Status.paused)
    ]
    return str(running[0].local_directory) if len(running) == 1 else None
