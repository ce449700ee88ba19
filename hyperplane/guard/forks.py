"""One clear error where a process forked from this one uses its client or cluster.

``os.fork`` copies the objects, but not the thread that runs their event loop: each call would wait
for ever. It copies locks and queues of Dask's threads too, in whatever state they are, so that a
cluster started in the child may wait for a thread that is not there. And it copies what is done
at the end of the process: a child that ends with ``sys.exit`` would end the worker processes of
its parent and remove their folders.
"""

from __future__ import annotations

import os
import weakref
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import process
from typing import TYPE_CHECKING, Any, NoReturn

from hyperplane.errors import EngineError

if TYPE_CHECKING:
    from distributed import Client
    from distributed.deploy.cluster import Cluster

#: What Dask calls the processes of its workers.
WORKER_PROCESS = "Dask Worker process (from Nanny)"

_shared: weakref.WeakSet[Any] = weakref.WeakSet()
#: In a forked child, the process that it was forked from while clients or clusters were open.
_parent: int | None = None
_registered = False


def guard_forks(client: Client, cluster: Cluster) -> None:
    """Have both raise an error in every process that is forked from this one."""
    global _registered
    _shared.update((client, cluster))
    if not _registered and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork)
        _registered = True


def check_not_forked() -> None:
    """Refuse to start or find a cluster in a child of a process that had one open.

    Raises
    ------
    EngineError
        In such a child.
    """
    if _parent is not None:
        _refuse()


def _refuse(*args: object, **kwargs: object) -> NoReturn:
    del args, kwargs
    raise EngineError(
        "local",
        f"process {os.getpid()} was forked from process {_parent}, which has a client or cluster "
        "of Dask open; the threads that serve it are not copied by a fork, so that neither it nor "
        "a new cluster works here. Use them in the process that started them, fork before the "
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
    _leave_to_parent()
    for each in still_open:
        # Everything that waits asks for the loop. `close` catches the error, and `__del__` closes.
        names = {
            "loop": property(_refuse),
            "sync": _refuse,
            "close": _refuse,
            "shutdown": _refuse,
            "__del__": lambda self: None,
        }
        each.__class__ = type(type(each).__name__, (type(each),), names)


def _replace_offload_thread() -> None:
    """Give this child the thread in which Dask's scheduler reads graphs.

    The fork has copied the pool of that thread, but not the thread: the first computation on a
    cluster of the child would wait for ever.
    """
    from distributed import utils

    if hasattr(utils, "_offload_executor"):
        name = "Dask-Offload"
        utils._offload_executor = ThreadPoolExecutor(1, thread_name_prefix=name)


def _leave_to_parent() -> None:
    """Give up what this child would do at its end. No other door; the tests watch over this use."""
    # Loaded long ago: what is open was made by it.
    from distributed import SpecCluster

    SpecCluster._instances.clear()
    children = vars(process)["_children"]
    children.difference_update([child for child in children if child.name == WORKER_PROCESS])
    for finalizer in list(vars(weakref.finalize)["_registry"]):
        ended = finalizer.peek()
        module = str(getattr(ended[1], "__module__", "")) if ended is not None else ""
        if module.startswith("distributed."):
            finalizer.detach()
