"""The budget of a cluster: what is counted, the messages and the end."""

import asyncio
import pickle
from types import SimpleNamespace

import pytest

from hyperplane.guard import budget
from hyperplane.guard.budget import BudgetGuard, BudgetMeter


def test_core_hours_count_the_threads_of_the_workers():
    meter = BudgetMeter(12, "core-hours", None)
    assert meter.count(workers=2, threads=6, seconds=3600) == ""
    assert meter.used == 6
    assert meter.count(workers=0, threads=0, seconds=3600) == ""
    assert meter.used == 6


def test_money_counts_the_workers_with_their_share_of_the_price():
    meter = BudgetMeter(5, "USD", 0.25)
    meter.count(workers=4, threads=400, seconds=7200)
    assert meter.used == 2


def test_each_message_is_given_once():
    meter = BudgetMeter(10, "core-hours", None)
    assert meter.count(1, 1, 7.5 * 3600) == ""
    assert meter.count(1, 1, 3600) == (
        "85% of the budget of 10 core-hours is used; the cluster closes at 100 %, in 90 minutes "
        "with the present workers"
    )
    assert meter.count(1, 1, 600) == ""
    assert not meter.noticed
    assert meter.count(1, 1, 7200) == (
        "the budget of 10 core-hours is used up: the cluster closes in 10 s"
    )
    assert meter.noticed
    assert meter.count(1, 1, 7200) == ""


def test_a_budget_that_is_used_up_at_once_gives_one_message():
    meter = BudgetMeter(0.001, "core-hours", None)
    assert "is used up" in meter.count(1, 1, 3600)
    assert meter.count(1, 1, 3600) == ""


@pytest.fixture
def guard(monkeypatch):
    """A guard with one worker of two threads, its clock, and what it has done."""
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(budget, "time", clock)
    events = []
    workers = {"w": SimpleNamespace(nthreads=2)}
    scheduler = SimpleNamespace(
        workers=workers, log_event=lambda topic, message: events.append((topic, message))
    )

    async def start():
        meter = BudgetMeter(0.02, "core-hours", None)  # 36 s with this worker
        guard = BudgetGuard(meter, lambda: events.append("closed"))
        await guard.start(scheduler)
        await guard.close()  # the test calls `check_budget` itself
        return guard

    guard = asyncio.run(start())
    return SimpleNamespace(guard=guard, clock=clock, events=events)


def test_a_cluster_is_closed_after_a_warning_and_a_notice(guard):
    def until(seconds):
        while guard.clock.now < seconds:
            guard.clock.now += 1
            guard.guard.check_budget()
        return len(guard.events)

    assert until(28) == 0
    assert until(30) == 1
    assert until(35) == 1
    assert until(37) == 2
    assert until(44) == 2
    assert until(48) == 3
    (first, second), closed = guard.events[:2], guard.events[2]
    assert first[0] == second[0] == "warn"
    assert "is used;" in pickle.loads(first[1]["message"])
    assert "is used up" in pickle.loads(second[1]["message"])
    assert closed == "closed"


def test_the_time_of_a_suspended_machine_is_not_counted(guard):
    guard.clock.now += 7200
    guard.guard.check_budget()
    assert guard.guard.meter.used == pytest.approx(2 * budget.LONGEST / 3600)
