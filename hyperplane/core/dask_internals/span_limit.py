"""Workaround for the growing memory of distributed 2026.8: a span of each computation is kept.

A span has the task groups and the measurements of a computation. Dask keeps them until the
scheduler ends, so that it grows by some kilobytes with each ``compute``, however small. So do
workers, whose counters have entries for each span. Dask's cache of the prefixes of keys has up to
100,000 keys, which takes 10,000 small computations and 20 to 50 MB in a process. It is
cleared in schedulers and workers, not in a client whose scheduler is elsewhere.

Schedulers and workers without this package receive this module by value, so it imports no other
module of the package.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from functools import partial
from typing import Any

from dask.utils import key_split
from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin
from distributed.spans import CONTEXTS_WITH_SPAN_ID
from tornado.ioloop import PeriodicCallback

#: Finished spans that are kept, as many as Dask keeps of ``Scheduler.computations``.
KEPT_SPANS = 100
#: Entries of Dask's cache of prefixes above which it is cleared; a graph may have more.
KEPT_KEYS = 10_000
#: Seconds between two removals of a worker's entries.
INTERVAL = 5.0


class SpanLimit(SchedulerPlugin):
    """Scheduler plugin that removes the oldest spans whose tasks are forgotten."""

    name = "hyperplane-span-limit"

    async def start(self, scheduler: Any) -> None:
        """Ignore late measurements of removed spans, which Dask takes for an error."""
        self._spans = scheduler.extensions.get("spans")
        if self._spans is None:
            return
        heartbeat, known = self._spans.heartbeat, self._spans.spans

        def record_known_spans(worker: Any, data: Mapping[Any, float]) -> None:
            heartbeat(worker, {key: value for key, value in data.items() if key[1] in known})

        self._spans.heartbeat = record_known_spans

    def update_graph(self, scheduler: Any, **kwargs: Any) -> None:
        """Remove spans when a computation begins."""
        del kwargs
        limit_key_cache()
        if self._spans is None:
            return
        roots = self._spans.root_spans
        while len(roots) > KEPT_SPANS and _is_forgotten(scheduler, roots[0]):
            for span in [*roots[0].traverse_spans()]:
                self._remove(span)
            del roots[0]

    def _remove(self, span: Any) -> None:
        del self._spans.spans[span.id]
        self._spans.spans_search_by_name[span.name].remove(span)
        for tag in span.name:
            self._spans.spans_search_by_tag[tag].remove(span)


def _is_forgotten(scheduler: Any, span: Any) -> bool:
    """Return whether the scheduler has no task group of a span any more."""
    groups = scheduler.task_groups
    return all(groups.get(group.name) is not group for group in span.traverse_groups())


class SpanCounterLimit(WorkerPlugin):
    """Worker plugin that removes the entries of the oldest spans from a worker's counters.

    Nothing reads them: heartbeats send the increments, which are in another counter.
    """

    name = "hyperplane-span-counter-limit"

    def setup(self, worker: Any) -> None:
        """Start to remove entries, until the worker closes."""
        remove = partial(remove_old_spans, worker)
        timer = worker.periodic_callbacks[self.name] = PeriodicCallback(remove, INTERVAL * 1000)
        timer.start()

    def teardown(self, worker: Any) -> None:
        """Stop to remove entries."""
        worker.periodic_callbacks.pop(self.name).stop()


def limit_key_cache() -> None:
    """Clear Dask's cache of the prefixes of keys if it has many; a look-up takes some µs more."""
    if key_split.cache_info().currsize > KEPT_KEYS:
        key_split.cache_clear()


def remove_old_spans(worker: Any) -> None:
    """Remove the entries of all but the last spans from the counters of a worker."""
    limit_key_cache()
    for counter in (worker.digests_total, worker.digests_max):
        _remove_old_entries(counter)


def _remove_old_entries(counter: MutableMapping[Any, float]) -> None:
    keys = [
        key
        for key in list(counter)  # another thread may add entries
        if isinstance(key, tuple) and key[0] in CONTEXTS_WITH_SPAN_ID
    ]
    # An entry is in the order in which its span began on this worker.
    spans = list(dict.fromkeys(key[1] for key in keys))
    old = set(spans[:-KEPT_SPANS])
    for key in keys:
        if key[1] in old:
            del counter[key]
