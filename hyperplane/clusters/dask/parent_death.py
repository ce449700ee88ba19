"""Worker preload: kill the worker when its owner dies, even while a task holds the GIL.

Dask watches the owner in a Python thread of the worker, which cannot run while a long call into C
holds the GIL: such a worker outlived its owner by 41 s. The kernel's PR_SET_PDEATHSIG (prctl(2))
kills the process when its parent ends. The parent of a worker is the owner or the forkserver. The
forkserver ends when no process holds its pipe any more, so the worker closes its end of it here.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from multiprocessing import process

from hyperplane.clusters.dask.local import forkserver

PR_SET_PDEATHSIG = 1


def dask_setup(worker: object) -> None:
    """Make this process end with its parent; Dask calls this in each new worker process."""
    del worker
    forkserver.ignore_interrupts()
    if not sys.platform.startswith("linux"):
        return
    parent = process.parent_process()
    forkserver.close_inherited_pipe()
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        number = ctypes.get_errno()
        raise OSError(number, "prctl(PR_SET_PDEATHSIG): " + os.strerror(number))
    # The parent may have died between the fork and the call of prctl.
    if parent is not None and not parent.is_alive():
        os.kill(os.getpid(), signal.SIGKILL)
