"""Describe why a cluster makes no progress, from the state of its scheduler.

Remote schedulers receive this module pickled by value, so it imports no other module of this
package.
"""

from __future__ import annotations

import asyncio
import gc
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from dask.utils import format_bytes
from distributed.core import Status

if TYPE_CHECKING:
    from distributed import Scheduler, Worker
    from distributed.scheduler import TaskState, WorkerState

#: Most workers and groups of results that a message lists.
_LISTED = 3
_GIGABYTE = 10**9
#: How the names of Dask's clients in workers begin.
_WORKER_CLIENT = "Client-worker-"
#: Functions of Dask's client in which a task waits for the results of others.
_WAITING_FRAMES = ("in result", "in gather", "in _gather", "in wait", "in compute")


def release_memory(dask_worker: Worker) -> None:
    """Move all results of a worker to its disk, and return free memory to the system.

    Dask calls it in the worker, and passes the worker as the argument ``dask_worker``.
    """
    data: Any = dask_worker.data
    while getattr(data, "fast", None) and data.evict() != -1:
        pass
    gc.collect()
    try:
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):  # the C library is not glibc
        pass


def describe_paused(scheduler: Scheduler, tasks: int, seconds: float) -> str:
    """Return the message of a cluster whose workers are paused."""
    paused = [each for each in scheduler.workers.values() if each.status == Status.paused]
    lines = [
        f"no task has finished for {seconds:.0f} s, and {tasks} wait: "
        f"{_count(len(paused), 'worker')} of {len(scheduler.workers)} accept no task, because "
        "their memory is full"
    ]
    lines += [_describe_memory(worker) for worker in paused[:_LISTED]]
    held, wanted = _held_results(paused)
    if held:
        names = ", ".join(
            f"{format_bytes(size)} of {name}" for name, size in held.most_common(_LISTED)
        )
        lines.append(f"results on these workers: {names}")
    lines.append(f"to do: {_advise(paused, sum(held.values()), wanted)}")
    return "\n  ".join(lines)


def _describe_memory(worker: WorkerState) -> str:
    memory, limit = worker.memory, worker.memory_limit
    share = f" = {memory.process / limit:.0%}" if limit else ""
    return (
        f"worker {worker.name} uses {format_bytes(memory.process)} of "
        f"{format_bytes(limit)}{share}: {format_bytes(memory.managed)} are results, "
        f"{format_bytes(memory.spilled)} more are on its disk"
    )


def _held_results(workers: list[WorkerState]) -> tuple[Counter[str], int]:
    """Return bytes of the results on workers by prefix, and bytes of those that clients hold."""
    held: Counter[str] = Counter()
    wanted = 0
    for worker in workers:
        for task in worker.has_what:
            held[task.prefix.name] += task.get_nbytes()
            wanted += task.get_nbytes() if task.who_wants else 0
    return held, wanted


def _advise(paused: list[WorkerState], held: int, wanted: int) -> str:
    limit = max(worker.memory_limit for worker in paused)
    memory = f"start with ram_gb_per_proc={math.ceil(20 * limit / _GIGABYTE) / 10:g} or more"
    if wanted > held / 2 and wanted:
        return (
            f"delete futures and persisted collections that you do not need (they hold "
            f"{format_bytes(wanted)}), or {memory}"
        )
    return f"{memory}, or use more and smaller partitions"


def describe_lost(scheduler: Scheduler, tasks: int, seconds: float, lost: list[str]) -> str:
    """Return the message of a cluster whose workers have ended."""
    names = ", ".join(lost[:_LISTED]) + (", ..." if len(lost) > _LISTED else "")
    return (
        f"no task has finished for {seconds:.0f} s, and {tasks} wait: all workers have ended "
        f"({names}), and none has started again\n  to do: look for the reason with "
        "cluster.get_logs(), and start a new cluster"
    )


def find_waited_tasks(scheduler: Scheduler) -> list[TaskState]:
    """Return runnable tasks without a thread whose results running tasks wait for."""
    running = {task for worker in scheduler.workers.values() for task in worker.executing}
    return [
        task
        for name, client in scheduler.clients.items()
        if name.startswith(_WORKER_CLIENT)
        for task in client.wants_what
        if task.state in ("processing", "queued", "no-worker") and task not in running
    ]


async def do_all_wait(scheduler: Scheduler, seconds: float) -> bool:
    """Return whether each running task waits for the result of another one.

    False if a worker does not answer within ``seconds``, because a task holds the GIL.
    """
    try:
        stacks = await asyncio.wait_for(scheduler.get_call_stack(), seconds)
    except (TimeoutError, OSError):
        return False
    texts = ["\n".join(stack) for tasks in stacks.values() for stack in tasks.values()]
    return bool(texts) and all(
        "distributed/client.py" in text and any(frame in text for frame in _WAITING_FRAMES)
        for text in texts
    )


def describe_deadlock(tasks: list[TaskState], seconds: float) -> str:
    """Return the message of tasks that wait for tasks which have no thread."""
    return (
        f"no task has finished for {seconds:.0f} s: every running task waits for the result of "
        f"another one, and {_count(len(tasks), 'task')} among them {tasks[0].key!r} can not run, "
        "because the waiting tasks use all threads\n  to do: submit tasks from tasks within "
        "`with distributed.worker_client() as client:`, or call distributed.secede() before you "
        "wait"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
