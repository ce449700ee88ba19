"""Worker preload: kill the worker when its owner dies, even while a task holds the GIL.

Dask watches the owner in a Python thread of the worker, which cannot run while a long call into C
holds the GIL: such a worker outlived its owner by 41 s. On Linux the kernel kills it instead, see
PR_SET_PDEATHSIG in prctl(2).

The parent of a worker is the owner or the forkserver. The forkserver ends when no process has its
pipe open any more, so each worker closes its own copy of the pipe here.

``local_process`` loads it for the engines ``local`` and ``cuda``, ``ssh/start.py`` for ``ssh``;
there ``platforms/ssh/host_program.py`` also ends the processes with their connection.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing import process

from hyperplane.clusters.dask.local import forkserver

_PR_SET_PDEATHSIG = 1


def dask_setup(worker: object) -> None:
    """Make this process end with its parent; Dask calls this in each new worker process."""
    del worker
    forkserver.ignore_interrupts()
    parent = process.parent_process()
    forkserver.close_inherited_pipe()
    end_with_parent(lambda: parent is None or parent.is_alive())


def end_with_parent(is_parent_alive: Callable[[], bool]) -> None:
    """Make the kernel kill this process when its parent ends; do nothing except on Linux.

    ``is_parent_alive`` is called once, because the parent may have ended before this call. Raises
    an OSError if the kernel refuses.
    """
    if not sys.platform.startswith("linux"):
        return
    request_signal(signal.SIGKILL)
    if not is_parent_alive():
        os.kill(os.getpid(), signal.SIGKILL)


def request_signal(number: int) -> None:
    """Make the kernel of Linux send a signal at the end of the parent's thread; 0 for none."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number) != 0:
        error = ctypes.get_errno()
        raise OSError(error, "prctl(PR_SET_PDEATHSIG): " + os.strerror(error))
