"""What counts as a stall, with a scheduler whose state the test sets."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.core import Status
from state_double import StateDouble

from hyperplane.guard import adaptive_requests, stall_causes, stalls
from hyperplane.guard.adaptive_requests import AdaptiveRequests
from hyperplane.guard.stalls import StallGuard


@pytest.fixture
def moment(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(stalls.time, "monotonic", lambda: now[0])
    return now


def create_guard(worker: Any, timeout: float = 60.0, **options: bool) -> Any:
    scheduler = SimpleNamespace(
        workers={worker.address: worker}, plugins={}, queued=[], unrunnable=[], clients={}
    )
    guard: Any = StallGuard(timeout, **options)
    guard.scheduler = scheduler
    return guard


def create_worker(prefix: str = "load", **attributes: Any) -> Any:
    task = StateDouble(prefix=SimpleNamespace(name=prefix))
    worker = SimpleNamespace(
        address="w0",
        nanny="n0",
        name=0,
        status=Status.paused,
        metrics={"cpu": 0.0},
        processing={task: 1.0},
        executing={task: 1.0},
        actors=set(),
        has_what={},
        memory=SimpleNamespace(managed=0, process=100),
    )
    task.processing_on = worker
    vars(worker).update(attributes)
    return worker


def test_seconds_in_which_the_scheduler_was_stopped_do_not_count(moment: list[float]) -> None:
    guard = create_guard(create_worker("shuffle-transfer"))
    for step in (1.0, 1.0, 3600.0):
        moment[0] += step
        asyncio.run(guard.check_progress())
    assert guard._now == 4.0
    assert guard._stalled_since == 2.0


@pytest.mark.parametrize(
    ("prefix", "blocked"),
    [("transfer_files", False), ("load", False), ("shuffle-transfer", True), ("p2pshuffle", True)],
)
def test_only_the_tasks_of_dasks_shuffles_wait_for_other_workers(
    prefix: str, blocked: bool
) -> None:
    guard = create_guard(create_worker(prefix))
    guard._update_health(0.0)
    assert guard._is_blocked(1.0) is blocked


@pytest.mark.parametrize("nanny", ["n0", None])
def test_only_a_worker_that_starts_again_is_ended(nanny: str | None) -> None:
    guard = create_guard(create_worker(nanny=nanny, executing={}), restarts=True)
    restarted: list[list[str]] = []

    async def restart_workers(addresses: list[str], **options: Any) -> None:
        restarted.append(addresses)

    guard.scheduler.restart_workers = restart_workers
    assert asyncio.run(guard._restart_paused()) is (nanny is not None)
    assert restarted == ([["w0"]] if nanny else [])


@pytest.mark.parametrize(
    ("status", "ended"),
    [(Status.init, 0), (Status.running, 0), (Status.closing, 0), (Status.paused, 1)],
)
def test_only_a_paused_worker_is_a_reason_to_end_tasks(
    status: Status, ended: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that registers gets tasks later, seconds on a busy machine; one that closes ends."""
    guard = create_guard(create_worker(status=status, processing={}, executing={}))
    guard.scheduler.running = set()
    failed: list[str] = []
    monkeypatch.setattr(stalls, "list_unfinished", lambda scheduler: [StateDouble(key="x")])
    monkeypatch.setattr(stall_causes, "describe_paused", lambda *args: "")
    monkeypatch.setattr(guard, "_fail", lambda tasks, cause, *args: failed.append(cause))
    asyncio.run(guard._end_blocked(100.0))
    assert failed == ["memory"] * ended


@pytest.mark.parametrize(
    ("status", "pids", "ended"),
    [
        pytest.param(Status.running, [None], False, id="between two processes"),
        pytest.param(Status.running, [7] * 60, False, id="slow start"),
        pytest.param(Status.running, [7, None, 8, None, 9], False, id="some starts"),
        pytest.param(Status.running, [7, None, 8, None, 9, None, 10], True, id="many starts"),
        pytest.param(Status.running, [7, *[None] * 31], True, id="no process for long"),
        pytest.param(Status.starting, [None], False, id="starting"),
        pytest.param(Status.closing_gracefully, [7], True, id="closing"),
    ],
)
def test_a_nanny_starts_its_worker_again(
    status: Status, pids: list[int | None], ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = create_guard(create_worker())
    guard.scheduler.workers.clear()
    guard._lost[0] = "n0"
    nanny = SimpleNamespace(status=status)

    async def run(scheduler: Any, address: str, function: Any) -> Any:
        return function(nanny)

    failed: list[str] = []
    monkeypatch.setattr(stalls, "run_in_server", run)
    monkeypatch.setattr(guard, "_fail", lambda tasks, cause, *args: failed.append(cause))
    for nanny.pid in pids:
        assert failed == []
        asyncio.run(guard._end_blocked(100.0))
        guard._now += 1.0
    assert failed == ["lost"] * ended


def test_starts_count_until_a_task_finishes() -> None:
    """Also those of processes that register and end before they have run a task."""
    worker = create_worker()
    guard = create_guard(worker)
    for pid in range(1, 4):
        assert guard._may_register("n0", pid)
        guard.add_worker(guard.scheduler, worker.address)
    assert not guard._may_register("n0", 4)
    guard.transition("load", "processing", "memory")
    assert guard._may_register("n0", 5)


def test_a_worker_that_ran_for_long_has_time_to_start_again() -> None:
    worker = create_worker()
    guard = create_guard(worker)
    assert guard._may_register("n0", 1)
    guard._now += 1000.0
    guard.add_worker(guard.scheduler, worker.address)
    assert guard._may_register("n0", 0)


def set_adaptive(guard: Any) -> None:
    guard._adaptive = SimpleNamespace(are_regular=lambda seconds: seconds == 300.0)


#: What makes a task that waits for a thread no deadlock: name -> change of a guard.
NO_DEADLOCK: dict[str, Any] = {
    "memory is being lent": lambda guard: guard.scheduler.plugins.update(
        {"hyperplane-oom-retry": SimpleNamespace(is_preparing=True)}
    ),
    "a worker is being restarted": lambda guard: guard._lost.update({1: "n1"}),
    "the cluster is adaptive": lambda guard: set_adaptive(guard),
    "jobs or pods are started again": lambda guard: setattr(guard, "replaces_workers", True),
    "a worker has been added": lambda guard: setattr(guard, "_changed_at", 90.0),
}


@pytest.mark.parametrize("reason", ["", *NO_DEADLOCK])
def test_tasks_that_wait_for_a_thread(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    guard = create_guard(create_worker(status=Status.running))
    if reason:
        NO_DEADLOCK[reason](guard)
    assert find_deadlocks(guard, 100.0, monkeypatch) == ([] if reason else ["deadlock"])


def test_an_adaptive_cluster_has_more_time_for_another_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guard = create_guard(create_worker(status=Status.running))
    set_adaptive(guard)
    assert find_deadlocks(guard, 299.0, monkeypatch) == []
    assert find_deadlocks(guard, 301.0, monkeypatch) == ["deadlock"]


def find_deadlocks(guard: Any, seconds: float, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the causes with which tasks end whose workers have done nothing for a time."""
    guard._idle_since["w0"] = 0.0

    async def wait(*args: Any) -> bool:
        return True

    failed: list[str] = []
    monkeypatch.setattr(stall_causes, "do_all_wait", wait)
    monkeypatch.setattr(stall_causes, "find_waited_tasks", lambda scheduler: [StateDouble(key="x")])
    monkeypatch.setattr(guard, "_fail", lambda tasks, cause, *args: failed.append(cause))
    asyncio.run(guard._check_deadlock(seconds))
    return failed


@pytest.mark.parametrize("replaces_workers", [False, True])
def test_lost_workers_are_a_stall_unless_jobs_or_pods_follow(replaces_workers: bool) -> None:
    guard = create_guard(create_worker(), replaces_workers=replaces_workers)
    guard.scheduler.workers.clear()
    guard.scheduler.unrunnable.append(StateDouble(worker_restrictions=None))
    guard._lost[0] = "n0"
    assert guard._is_blocked(1.0) is not replaces_workers


@pytest.mark.parametrize(
    ("is_adaptive", "seconds", "ends"),
    [(False, 61.0, True), (True, 89.0, False), (True, 91.0, True)],
)
def test_adaptive_scaling_has_time_to_replace_lost_workers(
    is_adaptive: bool, seconds: float, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = create_guard(create_worker())
    guard.scheduler.workers.clear()
    guard._lost[0] = None  # no nanny
    if is_adaptive:
        set_adaptive(guard)
    failed: list[str] = []
    monkeypatch.setattr(guard, "_fail", lambda tasks, cause, *args: failed.append(cause))
    asyncio.run(guard._end_blocked(seconds))
    assert failed == (["lost"] if ends else [])


@pytest.mark.parametrize("is_adaptive", [False, True])
def test_lost_workers_do_not_count_after_adaptive_scaling_ends_others(is_adaptive: bool) -> None:
    guard = create_guard(create_worker())
    guard._lost[1] = "n1"
    if is_adaptive:
        set_adaptive(guard)
    guard.log_event("all", {"action": "remove-worker", "worker": "w0", "expected": True})
    assert guard._lost == ({} if is_adaptive else {1: "n1"})


@pytest.mark.parametrize(
    ("requests", "now", "is_adaptive"),
    [
        pytest.param([], 1.0, False, id="none"),
        pytest.param([0.0, 1.0, 2.0], 61.0, True, id="a moment ago"),
        pytest.param([0.0, 1.0, 2.0], 63.0, False, id="stopped"),
        pytest.param([0.0, 100.0], 290.0, True, id="long interval"),
        pytest.param([0.0, 100.0], 310.0, False, id="long interval, stopped"),
    ],
)
def test_a_cluster_is_adaptive_if_it_asks_how_many_workers_it_needs(
    requests: list[float], now: float, is_adaptive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = [0.0]
    monkeypatch.setattr(adaptive_requests.time, "monotonic", lambda: moment[0])
    scheduler: Any = SimpleNamespace(
        handlers={"adaptive_target": lambda target_duration: target_duration}
    )
    adaptive = AdaptiveRequests()
    adaptive.observe(scheduler)
    for moment[0] in requests:
        assert scheduler.handlers["adaptive_target"](target_duration=5) == 5
    moment[0] = now
    assert adaptive.are_regular(60.0) is is_adaptive
