"""A worker preload: the process dies with its owner, even while a task holds the GIL.

Dask's own watch is a Python thread in the worker, which cannot run while a long call into C
holds the interpreter: such a worker was seen to outlive its owner by 41 s. The kernel needs no
interpreter: PR_SET_PDEATHSIG (prctl(2)) kills the process when its parent ends. A worker's
parent is the owner, or the forkserver, which ends when the last holder of a pipe to it does; the
worker gives up its own end of that pipe here.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from multiprocessing import process

from hyperplane.engines.local import forkserver

PR_SET_PDEATHSIG = 1


def dask_setup(worker: object) -> None:
    """Tie this process to its parent; called by Dask in each new worker process."""
    del worker
    forkserver.ignore_interrupts()
    if not sys.platform.startswith("linux"):
        return
    parent = process.parent_process()
    forkserver.close_inherited_pipe()
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        number = ctypes.get_errno()
        raise OSError(number, "prctl(PR_SET_PDEATHSIG): " + os.strerror(number))
    # The owner may have died between the fork and this line.
    if parent is not None and not parent.is_alive():
        os.kill(os.getpid(), signal.SIGKILL)
