"""The scheduler keeps a limited number of spans and those of its tasks; so do workers' counters."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from dask.utils import key_split
from distributed.spans import SpansSchedulerExtension

from hyperplane.core.dask_internals.span_limit import (
    KEPT_KEYS,
    KEPT_SPANS,
    SpanLimit,
    remove_old_spans,
)


class FakeTaskGroup:
    """A task group of the scheduler."""

    name = "sum"


def make_scheduler() -> Any:
    scheduler = SimpleNamespace(task_groups={}, total_nthreads_history=[(0.0, 1)])
    scheduler.extensions = {"spans": SpansSchedulerExtension(scheduler)}  # type: ignore[arg-type]
    return scheduler


def begin_spans(scheduler: Any, limit: SpanLimit, count: int) -> list[Any]:
    spans = []
    for number in range(count):
        name, ids = ("outer", "inner"), (f"{id(spans)}-{number}", f"{id(spans)}-{number}-inner")
        spans.append(scheduler.extensions["spans"]._ensure_span(name, ids))
        limit.update_graph(scheduler)
    return spans


def test_the_oldest_spans_are_removed_with_their_children() -> None:
    scheduler, limit = make_scheduler(), SpanLimit()
    asyncio.run(limit.start(scheduler))
    spans = begin_spans(scheduler, limit, KEPT_SPANS + 20)
    extension = scheduler.extensions["spans"]
    assert len(extension.root_spans) == KEPT_SPANS
    assert len(extension.spans) == 2 * KEPT_SPANS
    assert len(extension.spans_search_by_name["outer", "inner"]) == KEPT_SPANS
    assert len(extension.spans_search_by_tag["inner"]) == KEPT_SPANS
    # Workers report measurements of both some time later.
    key = ("execute", "{}", "sum", "thread-cpu", "seconds")
    old, new = spans[0], spans[-1]
    data = {tuple(part.format(span.id) for part in key): 2.0 for span in (old, new)}
    extension.heartbeat(None, data)
    assert old.id not in extension.spans
    assert list(new._cumulative_worker_metrics.values()) == [2.0]


def test_spans_of_tasks_that_the_scheduler_has_are_kept() -> None:
    scheduler, limit = make_scheduler(), SpanLimit()
    asyncio.run(limit.start(scheduler))
    [first] = begin_spans(scheduler, limit, 1)
    group: Any = FakeTaskGroup()
    first.groups.add(group)
    scheduler.task_groups["sum"] = group
    begin_spans(scheduler, limit, KEPT_SPANS + 20)
    assert first.id in scheduler.extensions["spans"].spans
    scheduler.task_groups.clear()
    limit.update_graph(scheduler)
    assert len(scheduler.extensions["spans"].root_spans) == KEPT_SPANS


def test_the_counters_of_a_worker_keep_the_entries_of_the_last_spans() -> None:
    worker = SimpleNamespace(digests_total={"latency": 1.0}, digests_max={("get-data", "x"): 1.0})
    counters = worker.digests_total, worker.digests_max
    for number in range(KEPT_SPANS + 20):
        for counter in counters:
            for activity in ("thread-cpu", "serialize"):
                counter["execute", f"span-{number}", "sum", activity, "seconds"] = 1.0
    remove_old_spans(worker)
    assert worker.digests_total.pop("latency") == 1.0
    assert worker.digests_max.pop(("get-data", "x")) == 1.0, "not one of a span"
    for counter in counters:
        assert {key[1] for key in counter} == {f"span-{n}" for n in range(20, KEPT_SPANS + 20)}
        assert len(counter) == 2 * KEPT_SPANS


@pytest.mark.parametrize("process", ["scheduler", "worker"])
def test_the_cache_of_prefixes_is_cleared_when_it_has_many_keys(process: str) -> None:
    key_split.cache_clear()
    scheduler, limit = make_scheduler(), SpanLimit()
    asyncio.run(limit.start(scheduler))

    def look() -> int:
        if process == "scheduler":
            limit.update_graph(scheduler)
        else:
            remove_old_spans(SimpleNamespace(digests_total={}, digests_max={}))
        return int(key_split.cache_info().currsize)

    for number in range(KEPT_KEYS):
        key_split(f"sum-{number}")
    assert look() == KEPT_KEYS
    key_split("sum-more")
    assert look() == 0
