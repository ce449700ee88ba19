"""Give one worker process the memory of all worker processes on its node, for some tasks.

The other processes of the node end meanwhile; their results move to the one that stays. Their
nannies stay and start them again afterwards. No task is interrupted: while any task of the node
runs, nothing is lent.

Remote schedulers receive this module pickled by value, so it imports only modules that are sent
with it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from distributed.core import Status

from hyperplane.guard import worker_limits
from hyperplane.guard.server_calls import run_in_server
from hyperplane.guard.stall_causes import release_memory

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import WorkerState

logger = logging.getLogger(__name__)

#: Name of no worker: tasks restricted to it wait.
_NOWHERE = "hyperplane-waits-for-memory"
_STIMULUS = "hyperplane-memory-lent"
#: Seconds for other tasks of the node to finish.
DRAIN_SECONDS = 30.0
#: How often the workers of a node are made idle, because one may get a task meanwhile.
_DRAIN_TRIES = 5
#: Seconds for the results of the other workers to move, and after which tasks that have the memory
#: must run.
_MOVE_SECONDS = 30.0
#: Seconds that the start or the end of a worker process may take.
_PROCESS_SECONDS = 60.0
#: Seconds that a worker may take to free the memory of the tasks before it is returned.
_FREE_SECONDS = 60.0
#: Share of the original limit that a worker should not exceed before it returns the memory.
_RETURN_SHARE = 0.6
#: Requests to a nanny to start its worker again.
_RESUME_TRIES = 3
_INTERVAL = 0.1
#: States of tasks that will run.
_UNFINISHED = ("waiting", "processing", "queued", "no-worker")


@dataclass
class MemoryLoan:
    """Memory of one node that one of its workers uses.

    Parameters
    ----------
    keeper : WorkerState
        The worker that stays.
    lenders : tuple of str
        Addresses of the nannies of the other workers. Those of workers change with a restart.
    total : int
        Memory limit of all together in bytes.
    keys : set
        Keys of the tasks that need the memory.
    """

    keeper: WorkerState
    lenders: tuple[str, ...]
    total: int
    keys: set[Any] = field(default_factory=set)
    own_limit: int = 0

    def __post_init__(self) -> None:
        self.own_limit = self.keeper.memory_limit

    @property
    def nannies(self) -> set[str]:
        """Addresses of the nannies of all workers of the node."""
        return {str(self.keeper.nanny), *self.lenders}


class NodeLender:
    """Lends the memory of a node; :meth:`roll_back` undoes it, however far it came.

    Parameters
    ----------
    scheduler : Scheduler
        Scheduler of this process.
    loan : MemoryLoan
        What to lend.
    """

    def __init__(self, scheduler: Scheduler, loan: MemoryLoan) -> None:
        self.scheduler, self.loan = scheduler, loan
        #: Whether workers of the node wait for each other.
        self.is_preparing = False
        #: Whether more tasks can wait for the memory.
        self.accepts_tasks = True
        self._retired: set[str] = set()
        self._suspended = self._is_returning = False
        self._threads = 0

    def hold(self, key: Any) -> None:
        """Let a task wait until the memory is ready."""
        self.loan.keys.add(key)
        self.scheduler.set_restrictions({key: [_NOWHERE]})

    @property
    def suspended(self) -> set[str]:
        """Addresses of the nannies whose workers end, or have ended, to lend their memory."""
        return set(self.loan.lenders) if self.is_preparing or self._suspended else set()

    def has_unfinished_tasks(self) -> bool:
        """Return whether a task that needs the memory will run; not if it was cancelled."""
        tasks = (self.scheduler.tasks.get(key) for key in self.loan.keys)
        return any(task is not None and task.state in _UNFINISHED for task in tasks)

    async def wait_for_release(self) -> None:
        """Wait until a task needs the memory now, during which the other workers go on.

        A process that the kernel ended is reported after Dask has given its tasks to another
        worker. There they end, or are reported again and have to wait.
        """
        while self._list_states() == {"processing"}:
            await asyncio.sleep(_INTERVAL)

    def _list_states(self) -> set[str]:
        tasks = self.scheduler.tasks
        return {tasks[key].state for key in self.loan.keys if key in tasks}

    def has_keeper(self) -> bool:
        """Return whether the worker that has the memory has not ended."""
        keeper = self.loan.keeper
        return self.scheduler.workers.get(keeper.address) is keeper

    async def lend(self) -> bool:
        """End the other workers of the node, raise the limits, and let the tasks run.

        Return whether the memory is lent. After False or an exception :meth:`roll_back` is needed.
        """
        loan, scheduler = self.loan, self.scheduler
        self.is_preparing = True
        for _ in range(_DRAIN_TRIES):
            if not await self._drain(loan.nannies):
                return False
            loan.keeper = self._find_workers({str(loan.keeper.nanny)})[0]
            # A worker above its own limits would accept no results of the others.
            await self._set_limits(loan.total)
            if not self.has_keeper():
                continue
            scheduler.handle_worker_status_change(Status.running, loan.keeper, _STIMULUS)
            if not await self._retire() or not await self._drain({str(loan.keeper.nanny)}):
                return False
            if self._is_idle():
                break
        else:
            return False
        self._suspended = True
        calls = (self._call(nanny, worker_limits.suspend_worker) for nanny in loan.lenders)
        if not all(await asyncio.gather(*calls)):
            return False
        self._threads = await self._call(loan.keeper.address, worker_limits.limit_threads, 1) or 0
        if not self._threads or not self.has_keeper():
            return False
        self._release_tasks()
        return True

    def _is_idle(self) -> bool:
        """Return whether no worker was lost, and none got a task while results were moved.

        A task comes with a message of a worker that was sent before it was paused.
        """
        lenders = self._find_workers(self.loan.lenders)
        return (
            self.has_keeper()
            and {worker.address for worker in lenders} == self._retired
            and not any(worker.processing for worker in lenders)
        )

    def _release_tasks(self) -> None:
        self.is_preparing = self.accepts_tasks = False
        scheduler, keeper = self.scheduler, self.loan.keeper
        logger.warning(
            "worker %s has the memory of its node, %d bytes, for a task that exceeded %d bytes",
            keeper.name,
            self.loan.total,
            self.loan.own_limit,
        )
        for key in self.loan.keys & set(scheduler.tasks):
            task = scheduler.tasks[key]
            if task.state == "processing":  # on another node, where it may fit
                self.loan.keys.remove(key)
                scheduler.set_restrictions({key: None})
            elif task.worker_restrictions == {_NOWHERE}:
                scheduler.set_restrictions({key: [keeper.address]})
        scheduler.running.add(keeper)  # before the status, which sends it other tasks
        self._schedule_tasks()
        scheduler.handle_worker_status_change(Status.running, keeper, _STIMULUS)

    def _schedule_tasks(self) -> None:
        for key in self.loan.keys & set(self.scheduler.tasks):
            if self.scheduler.tasks[key].state == "no-worker":
                self.scheduler.transitions({key: "processing"}, f"memory-lent-{time.time()}")

    async def _drain(self, nannies: set[str]) -> bool:
        """Wait until these workers run no task; return False if they still do at the deadline.

        A worker that registers counts as not started: it would get tasks a moment later.
        """
        deadline = time.monotonic() + _PROCESS_SECONDS
        has_started = False
        while time.monotonic() < deadline and self.has_unfinished_tasks():
            workers = self._find_workers(nannies)
            for worker in workers:
                self.pause(worker)
            started = [worker for worker in workers if worker.status != Status.init]
            if len(started) == len(nannies):
                if not any(worker.processing for worker in started):
                    return True
                if not has_started:
                    has_started, deadline = True, time.monotonic() + DRAIN_SECONDS
            await asyncio.sleep(_INTERVAL)
        return False

    def pause_started(self, worker: WorkerState) -> None:
        """Pause a worker of the node that has started or resumed while others still run tasks.

        Before the scheduler sends it tasks, for which the other workers would have to wait. Not the
        worker that has the memory, which receives the results.
        """
        prepares = self.is_preparing and not self._is_returning
        receives = worker is self.loan.keeper and worker.memory_limit == self.loan.total
        if prepares and not receives and worker.nanny in self.loan.nannies:
            self.pause(worker)

    def pause(self, worker: WorkerState) -> None:
        """Let the scheduler send no tasks to a worker of the node; what it has continues."""
        if worker.status == Status.running:
            self.scheduler.handle_worker_status_change(Status.paused, worker, _STIMULUS)

    def _find_workers(self, nannies: Container[str]) -> list[WorkerState]:
        return [each for each in self.scheduler.workers.values() if each.nanny in nannies]

    async def _retire(self) -> bool:
        """Copy the results of the other workers to the one that stays."""
        self._retired = {worker.address for worker in self._find_workers(self.loan.lenders)}
        # With ``remove`` the next heartbeat of a worker would end it with its nanny.
        retiring = self.scheduler.retire_workers(
            workers=list(self._retired), close_workers=False, remove=False
        )
        try:
            retired = await asyncio.wait_for(retiring, _MOVE_SECONDS)
        except TimeoutError:  # a paused worker accepts no results
            return False
        return set(retired) == self._retired

    async def wait_for_tasks(self) -> bool:
        """Wait until the tasks have ended; return False if the worker was lost or runs others."""
        late = time.monotonic() + _MOVE_SECONDS
        while self.has_unfinished_tasks():
            if not self.has_keeper():
                return False
            keeper = self.loan.keeper
            if any(task.key in self.loan.keys for task in keeper.executing):
                late = time.monotonic() + _MOVE_SECONDS
            elif time.monotonic() > late and keeper.executing:
                return False  # a task that uses the only thread may wait for these tasks
            await asyncio.sleep(_INTERVAL)
        return True

    async def wait_for_memory(self) -> None:
        """Wait until the worker runs nothing and needs no more than its own limit, for a minute.

        A task that began now would be ended when the limit is lowered.
        """
        if not self.has_keeper():  # a call would wait for an answer
            return
        self.is_preparing = self._is_returning = True
        await self._call(self.loan.keeper.address, release_memory)
        deadline = time.monotonic() + _FREE_SECONDS
        while self.has_keeper() and (self.loan.keeper.processing or self._is_full()):
            self.pause(self.loan.keeper)
            if time.monotonic() > deadline:
                logger.warning(
                    "worker %s returns the memory of its node although it still uses %d bytes",
                    self.loan.keeper.name,
                    self.loan.keeper.metrics.get("memory", 0),
                )
                return
            await asyncio.sleep(_INTERVAL)

    def _is_full(self) -> bool:
        """Return whether a worker exceeds its own limit, or would if it loaded a result."""
        keeper = self.loan.keeper
        largest = max((task.get_nbytes() for task in keeper.has_what), default=0)
        used = max(keeper.metrics.get("memory", 0), largest)
        return bool(used > _RETURN_SHARE * self.loan.own_limit)

    async def roll_back(self) -> None:
        """Set everything as before the loan, whatever was done and lost since."""
        loan = self.loan
        self.accepts_tasks = False
        self.is_preparing = self._is_returning = True  # until the workers are back
        self._remove_policies()
        self._free_tasks()
        await self._set_limits(loan.own_limit)
        if self._threads and self.has_keeper():
            await self._call(loan.keeper.address, worker_limits.limit_threads, self._threads)
        if self._suspended:
            await asyncio.gather(*(self._resume(nanny) for nanny in loan.lenders))
        calls = (self._restore_status(worker) for worker in self._find_workers(loan.nannies))
        await asyncio.gather(*calls)
        self._schedule_tasks()
        self.is_preparing = False

    def _remove_policies(self) -> None:
        """Remove what an incomplete ``retire_workers`` leaves in the memory manager of Dask."""
        manager: Any = self.scheduler.extensions.get("amm")
        for policy in list(getattr(manager, "policies", ())):
            if getattr(policy, "address", None) in self._retired:
                manager.policies.discard(policy)

    def _free_tasks(self) -> None:
        """Let the tasks run on any worker."""
        for key in self.loan.keys & set(self.scheduler.tasks):
            restrictions = self.scheduler.tasks[key].worker_restrictions
            if restrictions and restrictions <= {_NOWHERE, self.loan.keeper.address}:
                self.scheduler.set_restrictions({key: None})

    async def _resume(self, nanny: str) -> None:
        for _ in range(_RESUME_TRIES):
            if await self._call(nanny, worker_limits.resume_worker):
                return
        logger.error("the nanny %s, which lent its memory, does not start its worker again", nanny)

    async def _restore_status(self, worker: WorkerState) -> None:
        """Give a worker its own status again, which is paused if its own memory is full."""
        was_retired = worker.address in self._retired
        name = await self._call(worker.address, worker_limits.restore_status, was_retired)
        if self.scheduler.workers.get(worker.address) is worker:
            status = Status[name] if name in ("running", "paused") else Status.running
            self.scheduler.handle_worker_status_change(status, worker, _STIMULUS)

    async def _set_limits(self, limit: int) -> None:
        # A worker that its nanny starts again has the original limit.
        keeper = self.loan.keeper
        await self._call(keeper.nanny, worker_limits.set_memory_limit, limit, False)
        if self.has_keeper():
            await self._call(keeper.address, worker_limits.set_memory_limit, limit, False)
        if self.has_keeper():
            self.scheduler.total_memory += limit - keeper.memory_limit
            keeper.memory_limit = limit

    async def _call(self, address: str | None, function: Callable[..., Any], *args: Any) -> Any:
        if address is None:
            return None
        seconds = _PROCESS_SECONDS
        return await run_in_server(self.scheduler, address, function, *args, seconds=seconds)
