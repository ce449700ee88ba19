"""Worker preload: apply environment variables of memory allocators in a running process.

The C library reads ``MALLOC_TRIM_THRESHOLD_`` and similar variables when a process is started by
exec, and Arrow reads ``ARROW_DEFAULT_MEMORY_POOL`` when it is loaded. A worker gets its variables
after both: a forked one with its start message, a spawned one when Dask sets them. This preload
therefore applies them again, with mallopt(3) and through pyarrow. A forked worker applies those of
malloc also before it has threads, because threads keep the heaps that they have got.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from collections.abc import Mapping

#: Environment variables of glibc -> parameters of mallopt(3).
MALLOC = {
    "MALLOC_TRIM_THRESHOLD_": -1,
    "MALLOC_TOP_PAD_": -2,
    "MALLOC_MMAP_THRESHOLD_": -3,
    "MALLOC_ARENA_MAX": -8,
}
ARROW_POOL = "ARROW_DEFAULT_MEMORY_POOL"

#: A child of the worker's logger, so that `cluster.get_logs()` shows its messages.
logger = logging.getLogger("distributed.worker.hyperplane")


def select_variables(
    planned: Mapping[str, str], remaining: Mapping[str, str], linux: bool | None = None
) -> dict[str, str]:
    """Return the environment variables of a plan that a worker process gets.

    Variables of allocators are left out on systems without glibc. ``ARROW_DEFAULT_MEMORY_POOL`` is
    left out, too, if the user has set a variable of malloc: the system's pool with Dask's
    thresholds took a third more time than Arrow's default pool.

    ``planned`` has all variables of the plan; ``remaining`` has only those that the user has not
    set. ``linux`` says whether the worker runs on Linux; by default, whether this process does.
    """
    if linux is None:
        linux = sys.platform.startswith("linux")
    malloc_variables = {name for name in planned if name in MALLOC}
    excluded = set() if linux else malloc_variables | {ARROW_POOL}
    if not malloc_variables <= remaining.keys():
        excluded.add(ARROW_POOL)
    return {name: value for name, value in remaining.items() if name not in excluded}


def dask_setup(worker: object) -> None:
    """Apply the variables of this process; Dask calls this in each new worker process."""
    del worker
    for name in apply_malloc_options():
        value = os.environ[name]
        logger.warning("%s=%s has no effect: malloc does not accept this value", name, value)
    apply_arrow_pool()


def apply_malloc_options() -> list[str]:
    """Apply the variables of malloc; return the names of those whose value it does not accept.

    ``MALLOC_ARENA_MAX`` has no effect on heaps that threads have already: it is read when a second
    thread allocates.
    """
    present = [name for name in MALLOC if name in os.environ]
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform != "win32" else None
    if mallopt is None:  # the C library is not glibc
        return []
    values = {name: os.environ[name] for name in present}
    return [
        name
        for name, value in values.items()
        if not value.isdecimal() or not mallopt(MALLOC[name], int(value))
    ]


def apply_arrow_pool() -> None:
    """Let pyarrow use the pool that ``ARROW_DEFAULT_MEMORY_POOL`` names.

    Arrow's C++ library has chosen its own default when it was loaded. It keeps it for what it
    allocates without a pool of the caller, as the buffers of the Parquet writer.
    """
    name = os.environ.get(ARROW_POOL)
    if name is None:
        return
    import pyarrow

    if name not in pyarrow.supported_memory_backends():
        logger.warning("%s=%s has no effect: this pyarrow has no such pool", ARROW_POOL, name)
        return
    pyarrow.set_memory_pool(getattr(pyarrow, f"{name}_memory_pool")())
