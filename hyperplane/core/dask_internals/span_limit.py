"""Workaround for the growing memory of distributed 2026.8: a span of each computation is kept.

A span has the task groups and the measurements of a computation. Dask keeps them until the
scheduler ends, so that it grows by some kilobytes with each ``compute``, however small.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin

#: Finished spans that are kept, as many as Dask keeps of ``Scheduler.computations``.
KEPT_SPANS = 100


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
