"""End this process with its parent, even while a call into C holds the GIL.

A thread that watches the parent cannot run then: such a process outlived its parent by 41 s. On
Linux the kernel ends the process, see PR_SET_PDEATHSIG in prctl(2).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def end_with_parent(is_parent_alive: Callable[[], bool]) -> None:
    """Make the kernel kill this process when its parent ends; do nothing except on Linux.

    Parameters
    ----------
    is_parent_alive : callable
        Returns whether the parent runs; called once, because the parent may have ended before.

    Raises
    ------
    OSError
        When the kernel refuses.
    """
    if not sys.platform.startswith("linux"):
        return
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        number = ctypes.get_errno()
        raise OSError(number, "prctl(PR_SET_PDEATHSIG): " + os.strerror(number))
    if not is_parent_alive():
        os.kill(os.getpid(), signal.SIGKILL)
