"""A shuffle that ends because its workers were lost is named in the errors of all its tasks."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import dask
import dask.dataframe as dd
import pandas as pd
import pytest
from distributed import Client, Scheduler, Worker, wait
from distributed.diagnostics.plugin import SchedulerPlugin
from state_double import StateDouble
from test_memory_advice import make_report, make_task

from hyperplane.guard import shuffle_restarts
from hyperplane.guard.memory_advice import WorkerLayout
from hyperplane.guard.memory_explainer import MemoryExplainer
from hyperplane.guard.memory_report import MemoryReport
from hyperplane.guard.shuffle_restarts import ShuffleRestartLimit

TRANSFERS = [("shuffle-transfer-x", number) for number in range(3)]


def report_of(worker: str, *running: Any, peak: int = 480) -> MemoryReport:
    tasks = (make_task(str(key), "shuffle-transfer") for key in running)
    return replace(make_report(*tasks, peak=peak), worker=worker)


@pytest.mark.parametrize(
    ("reports", "blamed"),
    [
        pytest.param([report_of("w0", TRANSFERS[1])], TRANSFERS[1], id="one"),
        pytest.param(
            [report_of("w0", TRANSFERS[1]), report_of("w1", TRANSFERS[2], peak=490)],
            TRANSFERS[2],
            id="the largest",
        ),
        pytest.param(
            [report_of("w0", TRANSFERS[1]), report_of("other", TRANSFERS[2], peak=490)],
            TRANSFERS[1],
            id="only of workers that took part",
        ),
        pytest.param(
            [report_of("w0", ("make_rows-1", 4)), report_of("w1")],
            "shuffle-barrier-x",
            id="none of the shuffle ran",
        ),
    ],
)
def test_the_shuffle_is_blamed_and_not_the_tasks_that_make_its_rows(
    reports: list[MemoryReport], blamed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = StateDouble(key=("make_rows-1", 9), state="queued", dependencies=[])
    transfers = [StateDouble(key=key, state="waiting", dependencies=[rows]) for key in TRANSFERS]
    barrier = StateDouble(
        key="shuffle-barrier-x", state="waiting", dependencies=transfers, dependents=[]
    )
    explainer = MemoryExplainer(b"", WorkerLayout())
    explainer.reports.extend(reports)
    limit: Any = ShuffleRestartLimit()
    limit.scheduler = SimpleNamespace(
        plugins={explainer.name: explainer}, tasks={"shuffle-barrier-x": barrier}, workers={}
    )
    limit.losses["x"], limit._workers["x"] = 4, ["w0", "w1"]
    ended: list[Any] = []
    explained: list[Any] = []

    def fail_tasks(scheduler: Any, tasks: Any, error: Any, stimulus: str, explain: Any) -> None:
        ended.extend(tasks)
        for task in tasks:
            explain(task)

    def explain_memory(scheduler: Any, task: Any, *args: Any) -> None:
        explained.append(task.key)

    monkeypatch.setattr(shuffle_restarts, "fail_tasks", fail_tasks)
    monkeypatch.setattr(shuffle_restarts, "explain_memory", explain_memory)
    limit._fail("x", 4)
    assert ended == [rows]
    assert explained == [blamed]


def test_a_worker_that_is_lost_between_two_runs_counts() -> None:
    """It still has the rows of the former run, and the next one would not fit either."""
    run = SimpleNamespace(participating_workers={"w0", "w1"})
    extension = SimpleNamespace(active_shuffles={"x": run})
    limit: Any = ShuffleRestartLimit()
    worker = SimpleNamespace(memory_limit=500_000_000, nthreads=1)
    limit.scheduler = SimpleNamespace(extensions={"shuffle": extension}, workers={"w1": worker})

    def lose(worker: str, expected: bool = False) -> None:
        limit.log_event("all", {"action": "remove-worker", "worker": worker, "expected": expected})

    lose("w0")
    extension.active_shuffles = {}
    limit.scheduler.workers = {}
    lose("w1")
    lose("of no shuffle")
    lose("w1", expected=True)
    assert limit.losses == {"x": 2}
    assert limit._size == "17 MB", "that of the workers before all were lost"
    limit.transition("shuffle-barrier-x", "released", "forgotten")
    lose("w1")
    assert not limit.losses


def test_losses_after_all_results_are_in_memory_do_not_count() -> None:
    """The barrier of a shuffle whose results are kept is released, and not forgotten."""

    class LoseWorker(SchedulerPlugin):
        """Reports the loss of a worker when the first half of the shuffle has ended."""

        def __init__(self, limit: Any) -> None:
            self.limit, self.counted = limit, Counter[Any]()

        def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
            if str(key).startswith("shuffle-barrier-") and finish == "memory":
                worker = next(iter(self.limit.scheduler.workers))
                event = {"action": "remove-worker", "worker": worker, "expected": False}
                self.limit.log_event("all", event)
                self.counted.update(self.limit.losses)

    async def test() -> None:
        options = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
        limit = ShuffleRestartLimit()
        other = LoseWorker(limit)
        async with Scheduler(**options) as scheduler:
            await limit.start(scheduler)
            scheduler.add_plugin(limit)
            scheduler.add_plugin(other)
            async with (
                Worker(scheduler.address, nthreads=1, **options),
                Client(scheduler.address, asynchronous=True) as client,
            ):
                frame = pd.DataFrame({"k": range(100)})
                with dask.config.set({"dataframe.shuffle.method": "p2p"}):
                    kept = client.persist(dd.from_pandas(frame, npartitions=4).shuffle("k"))
                await wait(kept)
                assert list(other.counted.values()) == [1]
                barriers = [key for key in scheduler.tasks if "shuffle-barrier" in str(key)]
                assert [scheduler.tasks[key].state for key in barriers] == ["released"]
                assert not limit.losses
                assert not limit._participants

    asyncio.run(asyncio.wait_for(test(), 120))
