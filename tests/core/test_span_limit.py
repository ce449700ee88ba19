"""The scheduler keeps a limited number of spans, and those of tasks that it still has."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from distributed.spans import SpansSchedulerExtension

from hyperplane.core.dask_internals.span_limit import KEPT_SPANS, SpanLimit


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
