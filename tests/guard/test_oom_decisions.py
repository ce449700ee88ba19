"""Which tasks a report blames, and what follows, with a scheduler whose state the test sets."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from state_double import StateDouble

from hyperplane.guard import oom_retry
from hyperplane.guard.memory_report import MemoryReport, RunningTask
from hyperplane.guard.oom_retry import OomRetry

GB = 10**9


def create_task(key: str) -> Any:
    return StateDouble(
        key=key,
        prefix=SimpleNamespace(name=key),
        state="processing",
        worker_restrictions=None,
        host_restrictions=None,
        resource_restrictions=None,
    )


def create_worker(number: int) -> Any:
    return SimpleNamespace(
        address=f"tcp://127.0.0.1:{number}",
        nanny=f"tcp://127.0.0.1:{number + 100}",
        name=number,
        nthreads=2,
        memory_limit=GB,
        processing={},
        has_what=set(),
        long_running=set(),
        memory=SimpleNamespace(process=0),
    )


def create_report(worker: Any, *keys: str, time: float = 1.0, peak: int = GB) -> MemoryReport:
    running = tuple(RunningTask(key, key, 1.0, 100, 0) for key in keys)
    limit = worker.memory_limit
    return MemoryReport(
        worker.address, "0", "terminate", peak, limit, running, {}, 0, 2, 1, time, empty=100
    )


@pytest.fixture
def retry() -> OomRetry:
    workers = {each.address: each for each in (create_worker(1), create_worker(2))}
    scheduler: Any = SimpleNamespace(
        workers=workers,
        plugins={},
        worker_plugins={},
        task_prefixes={},
        tasks={},
        extensions={},
    )
    plugin = OomRetry(lends=True)
    asyncio.run(plugin.start(scheduler))
    return plugin


def first_worker(retry: OomRetry) -> Any:
    return next(iter(retry.scheduler.workers.values()))


def test_a_task_beside_those_that_fill_the_memory_is_not_blamed(retry: OomRetry) -> None:
    for number in range(5):
        report = create_report(first_worker(retry), "light", f"hog-{number}", time=number)
        assert not retry.has_failed(report, report.running[0])
    assert retry.kills["light"] == 0
    assert retry._single.pop_ended()


def test_a_task_that_has_left_its_thread_is_not_blamed(retry: OomRetry) -> None:
    worker = first_worker(retry)
    worker.long_running.add(create_task("driver"))
    for number in range(3):
        report = create_report(worker, "driver", "hog", time=number, peak=GB // 2)
        failed = [retry.has_failed(report, task) for task in report.running]
    assert failed == [False, True]
    assert retry._single.pop_ended() == [], "only one task used a thread"


def test_a_task_with_workers_chosen_by_the_user_gets_no_other(retry: OomRetry) -> None:
    worker = first_worker(retry)
    task = create_task("big")
    task.worker_restrictions = {worker.address}
    worker.processing[task] = 1.0
    retry.scheduler.tasks["big"] = task
    report = create_report(worker, "big")
    assert retry.has_failed(report, report.running[0])
    assert not retry.suspended


def remove_worker(retry: OomRetry, worker: Any) -> None:
    """Remove a worker as Dask does: it tells plugins, and then gives the tasks to others."""
    del retry.scheduler.workers[worker.address]
    retry.log_event("all", {"action": "remove-worker", "worker": worker.address})
    worker.processing.clear()
    worker.long_running.clear()


def test_the_report_of_a_removed_worker_blames_the_same_tasks(retry: OomRetry) -> None:
    worker = first_worker(retry)
    worker.long_running.add(create_task("driver"))
    report = create_report(worker, "driver", "hog", peak=GB // 2)
    remove_worker(retry, worker)
    assert not any(retry.has_failed(report, task) for task in report.running)
    assert retry.kills == {"hog": 1}, "only one task used a thread"


class LenderDouble:
    """A loan that fails in a way that a test chooses.

    Parameters
    ----------
    scheduler : Scheduler
        Not used.
    loan : MemoryLoan
        The loan.
    """

    outcome: Any = False

    def __init__(self, scheduler: Any, loan: Any) -> None:
        self.loan, self.is_preparing, self.accepts_tasks = loan, True, True
        self.returns = 0

    @property
    def suspended(self) -> set[str]:
        return set(self.loan.lenders)

    def hold(self, key: Any) -> None:
        self.loan.keys.add(key)

    def has_keeper(self) -> bool:
        return True

    async def wait_for_release(self) -> None:
        pass

    async def lend(self) -> bool:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        if self.outcome == "waits":
            await asyncio.sleep(1000)
        return False

    async def roll_back(self) -> None:
        self.returns += 1


@pytest.mark.parametrize("is_removed", [False, True], ids=["present", "removed"])
@pytest.mark.parametrize("outcome", [False, OSError("a nanny"), "waits"])
def test_memory_that_is_not_lent_returns_and_the_task_fails(
    retry: OomRetry, outcome: Any, is_removed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oom_retry, "NodeLender", LenderDouble)
    monkeypatch.setattr(oom_retry, "LEND_SECONDS", 0.2)
    monkeypatch.setattr(LenderDouble, "outcome", outcome)
    failed: list[tuple[str, ...]] = []
    explainer: Any = SimpleNamespace(fail=lambda *args: failed.append(args))
    retry.scheduler.plugins["hyperplane-memory-explainer"] = explainer
    worker, task = first_worker(retry), create_task("big")
    worker.processing[task] = 1.0
    task.state = "no-worker"
    retry.scheduler.tasks["big"] = task
    if is_removed:
        remove_worker(retry, worker)

    async def run() -> Any:
        report = create_report(worker, "big")
        assert not retry.has_failed(report, report.running[0]), "it waits for memory"
        assert retry.suspended == {worker.nanny}
        (lender,) = retry._lenders.values()
        await asyncio.gather(*retry._work)
        return lender

    assert asyncio.run(run()).returns == 1
    assert failed == [("big", "big", "terminate")]
    assert not retry.suspended
    assert not retry.is_preparing
