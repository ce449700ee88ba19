"""Memory that is lent returns, whatever fails meanwhile; a healthy task is never ended for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.core import Status
from state_double import StateDouble

from hyperplane.guard import node_memory
from hyperplane.guard.node_memory import MemoryLoan, NodeLender

LIMIT = 1000


class SchedulerDouble:
    """The attributes of Dask's scheduler that a NodeLender uses.

    Parameters
    ----------
    workers : int
        Number of workers.
    """

    def __init__(self, workers: int) -> None:
        self.workers = {f"w{number}": self._worker(number) for number in range(workers)}
        self.running = set(self.workers.values())
        self.total_memory = workers * LIMIT
        self.extensions: dict[str, Any] = {}
        self.tasks = {"big": SimpleNamespace(state="no-worker", worker_restrictions=None)}
        self.is_stuck = False
        self.retired: list[list[str]] = []
        self.on_retire: Callable[[], None] = lambda: None

    def _worker(self, number: int) -> Any:
        return StateDouble(
            address=f"w{number}",
            nanny=f"n{number}",
            name=number,
            status=Status.running,
            memory_limit=LIMIT,
            processing={},
            executing={},
            has_what={},
            metrics={"memory": 100},
        )

    def handle_worker_status_change(self, status: Status, worker: Any, stimulus: str) -> None:
        worker.status = status

    def set_restrictions(self, restrictions: dict[str, Any]) -> None:
        for key, names in restrictions.items():
            self.tasks[key].worker_restrictions = set(names) if names else None

    def transitions(self, recommendations: dict[str, str], stimulus: str) -> None:
        for key, state in recommendations.items():
            self.tasks[key].state = state

    async def retire_workers(self, workers: list[str], **options: bool) -> dict[str, Any]:
        assert options == {"close_workers": False, "remove": False}
        for address in workers:
            self.workers[address].status = Status.closing_gracefully
        self.retired.append(sorted(workers))
        self.on_retire()
        if self.is_stuck:
            await asyncio.sleep(1000)
        return dict.fromkeys(workers)


class NodeDouble:
    """Nannies and workers that answer the calls of a NodeLender.

    Parameters
    ----------
    scheduler : SchedulerDouble
        Its scheduler.
    """

    def __init__(self, scheduler: SchedulerDouble) -> None:
        self.scheduler = scheduler
        self.limits: dict[str, int] = {}
        self.threads: dict[str, int] = {}
        self.suspended: set[str] = set()
        self.own_status: dict[str, str] = {}
        self.dead: set[str] = set()

    async def run(
        self, scheduler: Any, address: str, function: Any, *args: Any, seconds: float = 5
    ) -> Any:
        if address in self.dead:
            return None
        return getattr(self, function.__name__)(address, *args)

    def set_memory_limit(self, address: str, limit: int, keep: bool) -> int:
        assert not keep, "only while the memory is lent"
        self.limits[address] = limit
        return LIMIT

    def limit_threads(self, address: str, threads: int) -> int:
        self.threads[address] = threads
        return 4

    def release_memory(self, address: str) -> None:
        pass

    def suspend_worker(self, nanny: str) -> bool:
        self.suspended.add(nanny)
        del self.scheduler.workers[nanny.replace("n", "w")]
        return True

    def resume_worker(self, nanny: str) -> bool:
        if nanny in self.suspended:
            self.suspended.discard(nanny)
            number = int(nanny[1:])
            self.scheduler.workers[f"w{number}"] = self.scheduler._worker(number)
        return True

    def restore_status(self, address: str, was_retired: bool) -> str:
        return self.own_status.get(address, "running")


@pytest.fixture
def scheduler() -> SchedulerDouble:
    return SchedulerDouble(3)


@pytest.fixture
def node(scheduler: SchedulerDouble, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeDouble]:
    node = NodeDouble(scheduler)
    monkeypatch.setattr(node_memory, "run_in_server", node.run)
    for name in ("DRAIN_SECONDS", "_PROCESS_SECONDS", "_MOVE_SECONDS", "_FREE_SECONDS"):
        monkeypatch.setattr(node_memory, name, 0.3)
    monkeypatch.setattr(node_memory, "_INTERVAL", 0.01)
    return node


def create_lender(scheduler: Any) -> NodeLender:
    lender = NodeLender(scheduler, MemoryLoan(scheduler.workers["w0"], ("n1", "n2"), 3 * LIMIT))
    lender.hold("big")
    return lender


def check_as_before(scheduler: SchedulerDouble, node: NodeDouble, lender: NodeLender) -> None:
    asyncio.run(lender.roll_back())
    assert sorted(scheduler.workers) == ["w0", "w1", "w2"]
    assert {worker.status for worker in scheduler.workers.values()} == {Status.running}
    assert not node.suspended
    assert set(node.limits.values()) <= {LIMIT}
    assert set(node.threads.values()) <= {4}
    assert scheduler.total_memory == 3 * LIMIT
    assert scheduler.tasks["big"].worker_restrictions is None
    assert not lender.is_preparing


def test_memory_is_lent_and_returned(scheduler: SchedulerDouble, node: NodeDouble) -> None:
    lender = create_lender(scheduler)
    assert scheduler.tasks["big"].worker_restrictions == {"hyperplane-waits-for-memory"}
    assert asyncio.run(lender.lend())
    assert node.suspended == {"n1", "n2"}
    assert node.limits == {"n0": 3 * LIMIT, "w0": 3 * LIMIT}
    assert node.threads == {"w0": 1}
    task = scheduler.tasks["big"]
    assert (task.state, task.worker_restrictions) == ("processing", {"w0"})
    assert lender.has_unfinished_tasks()
    task.state = "released"  # its result has been used and is not needed any more
    assert asyncio.run(lender.wait_for_tasks())
    keeper = scheduler.workers["w0"]
    keeper.processing["next"] = 1.0  # it began with the larger limit

    async def wait() -> None:
        waiting = asyncio.ensure_future(lender.wait_for_memory())
        while keeper.status != Status.paused:
            await asyncio.sleep(0.01)
        assert node.limits["w0"] == 3 * LIMIT
        keeper.processing.clear()
        await waiting

    asyncio.run(wait())
    check_as_before(scheduler, node, lender)


def test_a_task_does_not_wait_for_one_that_runs_on_another_node(
    scheduler: SchedulerDouble, node: NodeDouble
) -> None:
    lender = create_lender(scheduler)
    scheduler.tasks["big"].state = "processing"
    scheduler.tasks["waits"] = SimpleNamespace(state="no-worker", worker_restrictions=None)
    lender.hold("waits")
    assert lender.suspended == set()
    asyncio.run(lender.wait_for_release())
    assert asyncio.run(lender.lend())
    assert lender.suspended == {"n1", "n2"}
    assert scheduler.tasks["waits"].worker_restrictions == {"w0"}
    assert scheduler.tasks["big"].worker_restrictions is None
    scheduler.tasks["waits"].state = "released"
    assert not lender.has_unfinished_tasks()
    check_as_before(scheduler, node, lender)


def test_workers_go_on_while_one_still_runs_the_task(
    scheduler: SchedulerDouble, node: NodeDouble
) -> None:
    lender = create_lender(scheduler)
    task = scheduler.tasks["big"]
    task.state = "processing"

    async def wait() -> None:
        waiting = asyncio.ensure_future(lender.wait_for_release())
        done, _ = await asyncio.wait([waiting], timeout=0.2)
        assert not done
        assert lender.accepts_tasks
        assert not lender.is_preparing
        lender.pause_started(scheduler.workers["w1"])
        assert scheduler.workers["w1"].status == Status.running
        task.state = "no-worker"
        await waiting

    asyncio.run(wait())
    assert asyncio.run(lender.lend())
    assert not lender.accepts_tasks, "the memory is lent for the tasks that have waited"


def test_a_worker_that_registers_has_not_started(
    scheduler: SchedulerDouble, node: NodeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_memory, "_PROCESS_SECONDS", 100.0)
    worker = scheduler.workers["w2"]
    worker.status = Status.init
    lender = create_lender(scheduler)

    async def lend() -> bool:
        lending = asyncio.ensure_future(lender.lend())
        while scheduler.workers["w1"].status != Status.paused:
            await asyncio.sleep(0.01)
        assert worker.status == Status.init
        assert not scheduler.retired
        worker.status = Status.running
        lender.pause_started(worker)
        assert worker.status == Status.paused, "before it gets a task"
        return await lending

    assert asyncio.run(lend())
    assert scheduler.retired == [["w1", "w2"]]
    scheduler.tasks["big"].state = "memory"
    check_as_before(scheduler, node, lender)


def test_a_worker_that_got_a_task_meanwhile_is_drained_again(
    scheduler: SchedulerDouble, node: NodeDouble
) -> None:
    worker = scheduler.workers["w1"]

    def send_task() -> None:
        if len(scheduler.retired) == 1:  # its message was sent before it was paused
            worker.status = Status.running
            worker.processing["small"] = 1.0
            asyncio.get_running_loop().call_later(0.05, worker.processing.clear)

    scheduler.on_retire = send_task
    lender = create_lender(scheduler)
    assert asyncio.run(lender.lend())
    assert scheduler.retired == [["w1", "w2"]] * 2, "its result is moved, too"
    scheduler.tasks["big"].state = "memory"
    check_as_before(scheduler, node, lender)


def test_a_worker_that_is_lost_before_it_has_the_memory_is_replaced(
    scheduler: SchedulerDouble, node: NodeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = scheduler.workers["w0"]

    def set_memory_limit(address: str, limit: int, keep: bool) -> int:
        if scheduler.workers["w0"] is lost:
            scheduler.workers["w0"] = scheduler._worker(0)  # its nanny has started it again
        return NodeDouble.set_memory_limit(node, address, limit, keep)

    monkeypatch.setattr(node, "set_memory_limit", set_memory_limit)
    lender = create_lender(scheduler)
    assert asyncio.run(lender.lend())
    assert lost.status == Status.paused, "Dask would send tasks to a lost worker"
    assert lender.loan.keeper is scheduler.workers["w0"]
    assert lender.loan.keeper.memory_limit == 3 * LIMIT


def test_the_worker_that_receives_the_results_is_not_paused(
    scheduler: SchedulerDouble, node: NodeDouble
) -> None:
    """Its change of status is an event, as that of a worker that resumes."""
    lender = create_lender(scheduler)
    change_status = scheduler.handle_worker_status_change
    resumed: list[Status] = []

    def change(status: Status, worker: Any, stimulus: str) -> None:
        change_status(status, worker, stimulus)
        if status == Status.running:
            lender.pause_started(worker)
            resumed.append(worker.status)

    scheduler.handle_worker_status_change = change  # type: ignore[method-assign]
    assert asyncio.run(lender.lend())
    assert set(resumed) == {Status.running}


@pytest.mark.parametrize("busy", ["w0", "w1"])
def test_a_running_task_is_not_ended_for_a_loan(
    scheduler: SchedulerDouble, node: NodeDouble, busy: str
) -> None:
    scheduler.workers[busy].processing["healthy"] = 1.0
    lender = create_lender(scheduler)
    assert not asyncio.run(lender.lend())
    assert not node.suspended
    assert scheduler.workers[busy].processing == {"healthy": 1.0}
    check_as_before(scheduler, node, lender)


def test_results_that_do_not_move_are_no_reason_to_wait_forever(
    scheduler: SchedulerDouble, node: NodeDouble
) -> None:
    scheduler.is_stuck = True
    policies = {StateDouble(address="w1"), other := StateDouble(address="w0")}
    scheduler.extensions["amm"] = SimpleNamespace(policies=policies)
    lender = create_lender(scheduler)
    assert not asyncio.run(lender.lend())
    check_as_before(scheduler, node, lender)
    assert policies == {other}


def test_a_nanny_that_does_not_end_its_worker(scheduler: SchedulerDouble, node: NodeDouble) -> None:
    node.dead.add("n2")
    lender = create_lender(scheduler)
    assert not asyncio.run(lender.lend())
    node.dead.clear()
    check_as_before(scheduler, node, lender)


def test_a_lost_worker_returns_the_memory(scheduler: SchedulerDouble, node: NodeDouble) -> None:
    lender = create_lender(scheduler)
    assert asyncio.run(lender.lend())
    scheduler.total_memory += LIMIT - scheduler.workers["w0"].memory_limit
    scheduler.workers["w0"] = scheduler._worker(0)  # its nanny has started it again
    assert not asyncio.run(lender.wait_for_tasks())
    node.limits.pop("w0")
    node.threads.clear()
    check_as_before(scheduler, node, lender)
    assert node.limits["n0"] == LIMIT


def test_a_task_that_takes_the_only_thread_ends_the_loan(
    scheduler: SchedulerDouble, node: NodeDouble
) -> None:
    lender = create_lender(scheduler)
    assert asyncio.run(lender.lend())
    scheduler.workers["w0"].executing[StateDouble(key="waits-for-big")] = 1.0
    assert not asyncio.run(lender.wait_for_tasks())
    check_as_before(scheduler, node, lender)


def test_a_cancelled_task_needs_no_memory(scheduler: SchedulerDouble, node: NodeDouble) -> None:
    lender = create_lender(scheduler)
    scheduler.workers["w1"].processing["healthy"] = 1.0
    del scheduler.tasks["big"]
    assert not asyncio.run(lender.lend())
    scheduler.tasks["big"] = SimpleNamespace(state="waiting", worker_restrictions=None)
    check_as_before(scheduler, node, lender)


def test_memory_returns_although_the_worker_is_still_full(
    scheduler: SchedulerDouble, node: NodeDouble, caplog: pytest.LogCaptureFixture
) -> None:
    lender = create_lender(scheduler)
    assert asyncio.run(lender.lend())
    scheduler.workers["w0"].metrics["memory"] = 2 * LIMIT
    asyncio.run(lender.wait_for_memory())
    assert "although it still uses 2000 bytes" in caplog.text
    check_as_before(scheduler, node, lender)


def test_a_worker_whose_own_memory_is_full_stays_paused(
    scheduler: SchedulerDouble, node: NodeDouble
) -> None:
    scheduler.workers["w2"].processing["healthy"] = 1.0
    node.own_status["w1"] = "paused"
    lender = create_lender(scheduler)
    assert not asyncio.run(lender.lend())
    asyncio.run(lender.roll_back())
    statuses = {address: worker.status.name for address, worker in scheduler.workers.items()}
    assert statuses == {"w0": "running", "w1": "paused", "w2": "running"}
