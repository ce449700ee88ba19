"""A worker preload: the variables of allocators, in force in a process that runs already.

The C library reads ``MALLOC_TRIM_THRESHOLD_`` and similar variables when a process is started by
exec, and Arrow reads ``ARROW_DEFAULT_MEMORY_POOL`` when it is loaded. A worker gets its variables
after both: a forked one with its start message, a spawned one when Dask sets them. This preload
therefore applies them again, with mallopt(3) and through pyarrow.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from collections.abc import Mapping

#: Variables of glibc -> numbers of mallopt(3).
MALLOC = {
    "MALLOC_TRIM_THRESHOLD_": -1,
    "MALLOC_TOP_PAD_": -2,
    "MALLOC_MMAP_THRESHOLD_": -3,
    "MALLOC_ARENA_MAX": -8,
}
ARROW_POOL = "ARROW_DEFAULT_MEMORY_POOL"

#: Below the worker's own, so that `cluster.get_logs()` shows it.
logger = logging.getLogger("distributed.worker.hyperplane")


def select_variables(
    asked: Mapping[str, str], free: Mapping[str, str], linux: bool | None = None
) -> dict[str, str]:
    """The variables of a plan that a worker process shall have.

    Parameters
    ----------
    asked : mapping
        All of the plan.
    free : mapping
        Those of them that the user has not set otherwise.
    linux : bool, optional
        Whether the worker's machine has Linux; this one's by default.

    Returns
    -------
    dict
        Without those of allocators where they are not for the C library there. Arrow keeps its pool
        where the user has chosen another way for malloc: the system's pool with Dask's thresholds
        cost a third more than Arrow's own.
    """
    if linux is None:
        linux = sys.platform.startswith("linux")
    ours = {name for name in asked if name in MALLOC}
    left_out = set() if linux else ours | {ARROW_POOL}
    if not ours <= free.keys():
        left_out.add(ARROW_POOL)
    return {name: value for name, value in free.items() if name not in left_out}


def dask_setup(worker: object) -> None:
    """Put the variables of this process in force; called by Dask in each new worker process."""
    del worker
    _malloc()
    _arrow()


def _malloc() -> None:
    set_ = [name for name in MALLOC if name in os.environ]
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform != "win32" else None
    if mallopt is None:  # a C library that is not glibc has other words for it, or none
        return
    for name in set_:
        value = os.environ[name]
        if not value.isdecimal() or not mallopt(MALLOC[name], int(value)):
            logger.warning("%s=%s is not in force: malloc does not take it", name, value)


def _arrow() -> None:
    name = os.environ.get(ARROW_POOL)
    if name is None:
        return
    import pyarrow

    if name not in pyarrow.supported_memory_backends():
        logger.warning("%s=%s is not in force: this pyarrow has no such pool", ARROW_POOL, name)
        return
    pyarrow.set_memory_pool(getattr(pyarrow, f"{name}_memory_pool")())
