"""Functions that change the limits of running workers and nannies; they run in these processes.

Remote schedulers receive this module pickled by value, so it imports no other module of this
package. Dask passes the server to each function as its argument ``dask_worker``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from distributed.core import Status
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.spill import SpillBuffer

if TYPE_CHECKING:
    from distributed import Nanny, Worker


class SingleThreadPlugin(WorkerPlugin):
    """Worker plugin that lets the workers of some nannies run one task at a time.

    A worker sets its plugins up before it receives its first task.

    Parameters
    ----------
    nannies : frozenset of str
        Addresses of the nannies.
    """

    name = "hyperplane-single-thread"

    def __init__(self, nannies: frozenset[str]) -> None:
        self.nannies = nannies

    def setup(self, worker: Worker) -> None:
        """Limit the worker if it is of one of the nannies."""
        if str(worker.nanny) in self.nannies:
            worker.state.nthreads = 1


def limit_threads(threads: int, dask_worker: Worker) -> int:
    """Let a worker run at most this number of tasks together; return the number until now."""
    before = dask_worker.state.nthreads
    dask_worker.state.nthreads = threads
    return before


def set_memory_limit(limit: int, keep: bool, dask_worker: Worker | Nanny) -> int:
    """Set the memory limit of a worker, or the one that its nanny enforces; return the old one.

    With ``keep`` the processes that a nanny starts later have this limit, too: it creates them
    with the arguments of the first one.
    """
    manager: Any = dask_worker.memory_manager
    before = manager.memory_limit
    manager.memory_limit = limit
    process = getattr(dask_worker, "process", None)
    if keep and process is not None:
        process.worker_kwargs["memory_limit"] = limit
    # What a worker has computed from its limit when it started.
    if isinstance(getattr(manager, "data", None), SpillBuffer) and manager.memory_target_fraction:
        manager.data.n = int(limit * manager.memory_target_fraction)
    state: Any = getattr(dask_worker, "state", None)
    incoming = getattr(state, "transfer_incoming_bytes_limit", math.inf)
    if before and incoming < math.inf:
        state.transfer_incoming_bytes_limit = int(incoming / before * limit)
    return before or 0


def restore_status(was_retired: bool, dask_worker: Worker) -> str:
    """Return the status of a worker, which accepts tasks again if it was to be retired."""
    if was_retired and dask_worker.status == Status.closing_gracefully:
        dask_worker.status = Status.running
    return str(dask_worker.status.name)


async def suspend_worker(dask_worker: Nanny) -> bool:
    """End the worker process of a nanny, which starts no new one until it is resumed."""
    # With this status a nanny starts no new process, and does not check the memory.
    dask_worker.status = Status.starting
    await dask_worker.kill(reason="hyperplane-memory-lent")
    return True


async def resume_worker(dask_worker: Nanny) -> bool:
    """Start the worker process of a suspended nanny."""
    if dask_worker.status == Status.starting:
        dask_worker.status = Status.running
        await dask_worker.instantiate()
    return True
