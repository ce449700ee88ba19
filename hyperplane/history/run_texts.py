"""Records of runs as text for a terminal and as HTML for a notebook.

``RunRecord`` uses this module, which therefore does not import it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from hyperplane.core.html_output import make_output, make_table
from hyperplane.core.text_tables import format_columns
from hyperplane.core.units import (
    format_bytes,
    format_duration,
    format_local_time,
    format_number,
    plural,
)

#: Operations that the text of a record has, those with the most time.
_OPERATIONS = 5
#: Columns of a printed list.
_TITLES = ("run", "of", "ended", "time", "CPU", "peak", "on disk", "restarts")


class RunList(list[Any]):
    """Records as a list, which prints as a table."""

    def __str__(self) -> str:
        return format_columns(_TITLES, self._cells()) if self else "no runs"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return make_output(make_table(_TITLES, self._cells()) if self else "no runs")

    def _cells(self) -> Iterator[tuple[str, ...]]:
        """Yield the cells of each record, which its time names, or all of its name."""
        times = [each.name.removesuffix(f"-{each.subject}") for each in self]
        counts = Counter(times)
        for record, time in zip(self, times, strict=True):
            yield (time if counts[time] == 1 else record.name, *_list_figures(record))


def describe_record(record: Any) -> Iterator[tuple[str, str]]:
    """Yield the labels and texts of a printed record."""
    yield "run", record.name
    if record.label != record.cluster:
        yield "of", record.label
    if record.cluster:
        yield "cluster", record.cluster
    yield "started", format_local_time(record.started)
    yield "ended", f"{record.exit_reason or 'unknown'}, after {format_seconds(record.seconds)}"
    if record.job:
        yield "job", f"{record.run} ({record.job})" if record.run else record.job
    yield "CPU", format_seconds(record.cpu_seconds)
    yield "data", f"{format_bytes(record.read)} read, {format_bytes(record.written)} written"
    if record.cost is not None:
        yield "cost", describe_cost(record)
    if record.workers:
        yield "memory", _describe_memory(record)
    for task in record.tasks[:_OPERATIONS]:
        yield "tasks", f"{task.name}: {task.count}, {format_seconds(task.seconds)}"
    if len(record.tasks) > _OPERATIONS:
        yield "", f"and {plural(len(record.tasks) - _OPERATIONS, 'other operation')}"


def _describe_memory(record: Any) -> str:
    count = len(record.workers)
    largest = f" in the largest of {count} worker processes" if count > 1 and record.cluster else ""
    facts = [f"peak {_describe_peak(record)}{largest}"]
    if record.spilled:
        facts.append(f"up to {format_bytes(record.spilled)} on disk")
    if record.paused_seconds:
        facts.append(f"paused {format_seconds(record.paused_seconds)} in all")
    if record.restarts:
        facts.append(plural(record.restarts, "restart"))
    return ", ".join(facts)


def _describe_peak(record: Any) -> str:
    """Return the memory of the worker that was nearest to its limit, or used most without one."""
    worker = record.peak or max(record.workers, key=lambda each: each.peak, default=None)
    if worker is None:
        return ""
    limit = f" of {format_bytes(worker.limit)}" if worker.limit else ""
    return f"{format_bytes(worker.peak)}{limit}"


def _list_figures(record: Any) -> tuple[str, ...]:
    return (
        record.label,
        record.exit_reason,
        format_seconds(record.seconds),
        format_seconds(record.cpu_seconds),
        _describe_peak(record),
        format_bytes(record.spilled) if record.spilled else "",
        str(record.restarts) if record.restarts else "",
    )


def format_seconds(seconds: float) -> str:
    """Return a duration; one of less than a minute with two digits after the point.

    Examples
    --------
    >>> format_seconds(4.9688), format_seconds(2.6e-06), format_seconds(201.4)
    ('4.97 s', '0 s', '3 min 21 s')
    """
    if seconds < 59.5:
        return f"{format_number(round(seconds, 2))} s"
    return format_duration(seconds)


def describe_cost(record: Any) -> str:
    """Return the cost of a run as text; empty if it is unknown.

    Examples
    --------
    >>> from hyperplane.history import RunRecord
    >>> run = RunRecord(name="r", cluster="", started=0, ended=1, cost=0.012, currency="USD")
    >>> describe_cost(run)
    '0.012 USD'
    """
    return "" if record.cost is None else f"{record.cost:.3g} {record.currency}".strip()
