"""The report of a run: header, advice, pictures over the time, tables and versions."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator
from pathlib import Path

from hyperplane.core.argument_checks import describe_value
from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.public_calls import check_call
from hyperplane.core.units import format_duration, plural, round_bytes
from hyperplane.guard.run_summary import describe_plan
from hyperplane.guard.usage_texts import describe_grown
from hyperplane.history import RunRecord, RunTimeline, TaskUsage, WorkerUsage, read_run
from hyperplane.history.code_digest import SHOWN
from hyperplane.history.run_texts import describe_cost
from hyperplane.reports.gantt_chart import MOST_ROWS, draw_gantt
from hyperplane.reports.memory_chart import draw_memory
from hyperplane.reports.page import escape, grid, note, page, section, table
from hyperplane.reports.report_file import write_file
from hyperplane.reports.run_advice import advise
from hyperplane.reports.time_axis import TimeAxis

#: Most rows of tables of operations and computations, and of workers.
_ROWS, _WORKERS = 15, 50
#: What exit reasons mean that are a word of the package.
_REASONS = {
    "closed": "its program closed it",
    "out of memory": "it ran out of memory",
    "done": "it succeeded",
}
_OPERATION_TITLES = (
    "operation", "tasks", "failed", "time", "longest", "results", "largest", "input", "process",
)  # fmt: skip


@check_call(outcome="nothing was written")
def save_report(run: RunRecord | str = "latest", file: str | os.PathLike[str] = "run.html") -> Path:
    """Write the report of a run as one HTML file, which loads no other file and runs no script.

    Parameters
    ----------
    run : RunRecord or str
        The record of a run, or the name of one, as for :func:`hyperplane.history.read_run`.
    file : path
        The file, whose folder exists. A file of this name is replaced.

    Returns
    -------
    pathlib.Path
        The absolute path of the file.

    Raises
    ------
    RequestError
        If there is no such record, or the file cannot be written.
    ReadError
        If the record cannot be read.

    Examples
    --------
    >>> save_report("flights", "flights.html")  # doctest: +SKIP
    PosixPath('/home/ada/flights.html')
    """
    return write_file(file, render_report(_find(run)))


@check_call
def render_report(run: RunRecord | str = "latest") -> str:
    """Return the report of a run as an HTML page.

    Parameters
    ----------
    run : RunRecord or str
        The record of a run, or the name of one, as for :func:`hyperplane.history.read_run`.

    Returns
    -------
    str
        A page in UTF-8 for browsers, which is well-formed XML, too.

    Raises
    ------
    RequestError
        If there is no such record.
    ReadError
        If the record cannot be read.

    Examples
    --------
    >>> from hyperplane.history import RunRecord
    >>> run = RunRecord(name="20261127-flights", cluster="flights", started=0, ended=90)
    >>> render_report(run).startswith("<!DOCTYPE html>")
    True
    """
    record = _find(run)
    title = f"Run of {record.label or record.name}"
    return page(
        title,
        "en",
        f"<h1>{escape(title)}</h1>",
        *show_record(record),
        note(f"Record {record.name}, schema version {record.schema_version}."),
    )


def show_record(record: RunRecord) -> Iterator[str]:
    """Yield the parts of a page about a record."""
    yield table(_summary(record))
    yield section("Advice", table(advise(record)))
    yield from show_figures(record)
    yield section("Versions", table(record.versions.items()))


def show_figures(record: RunRecord) -> Iterator[str]:
    """Yield the pictures over the time, and the tables of operations and workers."""
    yield from _draw_timeline(record)
    yield _operations(record)
    yield _computations(record)
    yield _workers(record)


def _draw_timeline(record: RunRecord) -> Iterator[str]:
    timeline = record.timeline
    if timeline is None or not timeline.total:
        yield section("Memory over the time", note(_explain_missing(record)))
        return
    ends = [group.ended for group in timeline.groups]
    axis = TimeAxis(max(len(timeline.total) * timeline.part_seconds, *ends, 1e-3))
    chart = draw_memory(record, timeline, axis)
    yield section("Memory over the time", chart, note(_explain(record, timeline)))
    if timeline.groups:
        names = len({group.name for group in timeline.groups})
        most = f"The {MOST_ROWS} of {names} with the most time. " if names > MOST_ROWS else ""
        text = f"{most}A bar is from the first start to the last end of a group of tasks; some of "
        text += "its tasks failed if it is underlined."
        chart = draw_gantt(timeline.groups, axis)
        yield section("Operations over the time", chart, note(text))


def _find(run: object) -> RunRecord:
    if isinstance(run, RunRecord):
        return run
    if not isinstance(run, str):
        allowed = "the record of a run, or the name of one"
        raise RequestError([Fault("run", describe_value(run), allowed)])
    return read_run(run)


def _summary(record: RunRecord) -> Iterator[tuple[str, str]]:
    plan = record.plan
    started, ended = (format_time(each) for each in (record.started, record.ended))
    yield "time", f"{format_duration(record.seconds)}: {started} to {ended}"
    reason = _REASONS.get(record.exit_reason, record.exit_reason)
    yield "ended", reason or "no reason is recorded"
    if record.block:
        yield "block", record.block
    if record.cluster:
        yield "cluster", f"{record.cluster}, engine {plan.engine or 'unknown'}"
    elif plan.engine:
        yield "runner", plan.engine
    if record.program:
        yield "program", record.program
    if record.job:
        run = f"{record.run} ({record.job})" if record.run else record.job
        yield "job", f"{run}, {record.pipeline}/{record.step}"
    for name, value in record.parameters.items():
        yield "parameter", f"{name} = {value}"
    if record.code:
        yield "code", record.code[:SHOWN]
    if plan.nprocs:
        yield "plan", describe_plan(plan)
    elif plan.pool:
        yield "pool", plan.pool
    if record.peak is not None:
        share = f"{record.peak_share:.0%}".replace("%", " %")
        peak, limit = round_bytes(record.peak.peak), round_bytes(record.peak.limit)
        yield "peak", f"{peak} of {limit} in the fullest process, {share}"
    elif largest := max((worker.peak for worker in record.workers), default=0):
        yield "peak", f"{round_bytes(largest)}, limit unknown"
    if record.spilled:
        yield "on disk", f"up to {round_bytes(record.spilled)} of results"
    if record.paused_seconds:
        yield "paused", f"{format_duration(record.paused_seconds)}, summed over the workers"
    if record.restarts:
        yield "restarts", f"{record.restarts}, {record.killed} of them for lack of memory"
    if record.cpu_seconds:
        yield "CPU", format_duration(record.cpu_seconds)
    if record.read or record.written:
        yield "data", f"{round_bytes(record.read)} read, {round_bytes(record.written)} written"
    if record.cost is not None:
        yield "cost", describe_cost(record)


def format_time(seconds: float) -> str:
    """Return a time, in seconds since 1970, as text."""
    try:
        return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):  # a time of no year that has a name
        return f"{seconds:g}"


def _explain_missing(record: RunRecord) -> str:
    if record.cluster:
        return "Not recorded: an earlier version of hyperplane wrote this record."
    return (
        "Not recorded: this is the record of a step of a job, which has its peak only. The records "
        "of the clusters that the step starts have the memory over the time."
    )


def _explain(record: RunRecord, timeline: RunTimeline) -> str:
    text = f"Largest measured memory in parts of {format_duration(timeline.part_seconds)}."
    left = len(record.workers) - len(timeline.workers)
    return f"{text} {plural(left, 'worker')} without a picture." if left > 0 else text


def _operations(record: RunRecord) -> str:
    slowest = grid(_OPERATION_TITLES, map(_operation_row, record.tasks[:_ROWS]))
    sizes = sorted(record.tasks, key=lambda task: -task.largest_output)
    with_results = [task for task in sizes[:_ROWS] if task.largest_output]
    largest = grid(_OPERATION_TITLES, map(_operation_row, with_results))
    text = "Process: largest memory of a process while such a task ran."
    return "".join(
        [
            section("Slowest operations", slowest, note(text) if slowest else ""),
            section("Operations with the largest results", largest),
        ]
    )


def _operation_row(task: TaskUsage) -> tuple[str, ...]:
    return (
        task.name,
        f"{task.count:,}",
        f"{task.failed:,}",
        format_duration(task.seconds),
        format_duration(task.longest),
        round_bytes(task.output),
        round_bytes(task.largest_output),
        round_bytes(task.largest_input),
        round_bytes(task.memory),
    )


def _computations(record: RunRecord) -> str:
    longest = sorted(record.computations, key=lambda each: -each.seconds)[:_ROWS]
    titles = ("computation", "runs", "tasks", "input", "time", "CPU", "peak", "total", "on disk")
    rows = (
        (
            each.name,
            f"{each.count:,}",
            f"{each.tasks:,}",
            round_bytes(each.input),
            format_duration(each.seconds),
            format_duration(each.cpu_seconds),
            round_bytes(each.peak),
            round_bytes(each.total),
            round_bytes(each.spilled),
        )
        for each in longest
    )
    return section("Longest computations", grid(titles, rows))


def _limit(worker: WorkerUsage) -> str:
    if not worker.limit:
        return "none"
    grown = describe_grown(worker.limit, worker.first_limit)
    return f"{round_bytes(worker.limit)}, {grown}" if grown else round_bytes(worker.limit)


def _workers(record: RunRecord) -> str:
    def rank(worker: WorkerUsage) -> tuple[float, ...]:
        return -worker.restarts, -worker.paused_seconds, -worker.spilled, -worker.peak

    shown = sorted(record.workers, key=rank)[:_WORKERS]
    titles = ("worker", "restarts", "peak", "limit", "on disk", "for", "paused", "CPU")
    rows = (
        (
            worker.name,
            ", ".join(f"{count} {cause}" for cause, count in worker.causes.items())
            or (str(worker.restarts) if worker.restarts else "none"),
            round_bytes(worker.peak),
            _limit(worker),
            round_bytes(worker.spilled),
            format_duration(worker.spilling_seconds),
            format_duration(worker.paused_seconds),
            format_duration(worker.cpu_seconds),
        )
        for worker in shown
    )
    left = len(record.workers) - len(shown)
    more = note(f"and {plural(left, 'worker')} more") if left else ""
    return section("Workers", grid(titles, rows, texts=2), more)
