"""Raise an EngineError when a forked child process uses the client or cluster of its parent.

``os.fork`` copies the objects but not the thread that runs their event loop, so every call would
wait forever. It also copies locks and queues of Dask's threads in an arbitrary state, so a cluster
that the child starts may wait for a thread that does not exist. And it copies exit handlers: a
child that ends with ``sys.exit`` would end its parent's worker processes and remove their folders.
"""

from __future__ import annotations

import os
import weakref
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import process
from typing import TYPE_CHECKING, Any, NoReturn

from hyperplane.core.errors import EngineError

if TYPE_CHECKING:
    from distributed import Client
    from distributed.deploy.cluster import Cluster

#: Name that Dask gives to its worker processes.
WORKER_PROCESS = "Dask Worker process (from Nanny)"

#: Clients and clusters of this process.
_shared: weakref.WeakSet[Any] = weakref.WeakSet()
#: ID of the parent process, in a child that was forked while clients or clusters were open.
_parent: int | None = None
_registered = False


def guard_forks(client: Client, cluster: Cluster) -> None:
    """Make a client and a cluster raise an error in every process forked from this one."""
    global _registered
    _shared.update((client, cluster))
    if not _registered and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork)
        _registered = True


def check_not_forked() -> None:
    """Raise an EngineError in a child that was forked while its parent had a cluster open."""
    if _parent is not None:
        _raise_forked()


def _raise_forked(*args: object, **kwargs: object) -> NoReturn:
    del args, kwargs
    raise EngineError(
        "",  # the guard is on clusters of all engines
        f"process {os.getpid()} was forked from process {_parent}, which has a Dask client or "
        "cluster open; a fork does not copy the threads that serve them, so neither they nor a "
        "new cluster work here. Use them in the process that started them, fork before the "
        "first cluster starts, or start processes with "
        'multiprocessing.get_context("spawn") or "forkserver"',
    )


def _is_open(each: Any) -> bool:
    return str(getattr(each.status, "name", each.status)) not in ("closed", "newly-created")


def _after_fork() -> None:
    global _parent
    still_open = [each for each in _shared if _is_open(each)]
    if not still_open:
        _replace_offload_thread()
        return
    _parent = os.getppid()
    _remove_exit_handlers()
    for each in still_open:
        # Every method that waits uses `loop`. `close` would catch the error, and `__del__` would
        # call `close`, so both are replaced too.
        names = {
            "loop": property(_raise_forked),
            "sync": _raise_forked,
            "close": _raise_forked,
            "shutdown": _raise_forked,
            "__del__": lambda self: None,
        }
        each.__class__ = type(type(each).__name__, (type(each),), names)


def _replace_offload_thread() -> None:
    """Replace the thread pool in which Dask's scheduler deserializes graphs.

    The fork has copied the pool but not its thread, so the first computation on a cluster of the
    child would wait forever.
    """
    from distributed import utils

    if hasattr(utils, "_offload_executor"):
        name = "Dask-Offload"
        utils._offload_executor = ThreadPoolExecutor(1, thread_name_prefix=name)


def _remove_exit_handlers() -> None:
    """Remove exit handlers of the parent's clusters from this child.

    Neither Dask nor Python has a public API for this; tests cover these private attributes.
    """
    # Already imported, because the open clusters are instances of its classes.
    from distributed import SpecCluster

    SpecCluster._instances.clear()
    children = vars(process)["_children"]
    children.difference_update([child for child in children if child.name == WORKER_PROCESS])
    for finalizer in list(vars(weakref.finalize)["_registry"]):
        call = finalizer.peek()  # object, function, arguments
        module = str(getattr(call[1], "__module__", "")) if call is not None else ""
        if module.startswith("distributed."):
            finalizer.detach()
