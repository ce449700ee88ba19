"""Worker preload: kill the worker when its owner dies, even while a task holds the GIL.

Dask watches the owner in a Python thread of the worker, which cannot run while a long call into C
holds the GIL. The parent of a worker is the owner or the forkserver. The forkserver ends when no
process holds its pipe any more, so the worker closes its end of it here.
"""

from __future__ import annotations

from multiprocessing import process

from hyperplane.clusters.dask.local import forkserver
from hyperplane.platforms.local.parent_death import end_with_parent


def dask_setup(worker: object) -> None:
    """Make this process end with its parent; Dask calls this in each new worker process."""
    del worker
    forkserver.ignore_interrupts()
    parent = process.parent_process()
    forkserver.close_inherited_pipe()
    end_with_parent(lambda: parent is None or parent.is_alive())
