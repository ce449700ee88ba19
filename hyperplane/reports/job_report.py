"""The report of a pipeline job: graph of its steps, times, attempts, ends of logs, and records."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hyperplane.core.html_output import make_output
from hyperplane.core.public_calls import check_call
from hyperplane.core.units import format_duration, plural
from hyperplane.guard.task_group_times import MAX_GROUPS, merge_groups
from hyperplane.history.code_digest import SHOWN
from hyperplane.history.run_record import RunRecord
from hyperplane.history.timeline import TaskGroupTimes
from hyperplane.jobs import job_control
from hyperplane.jobs.artifacts import read_artifacts
from hyperplane.jobs.attempt_logs import has_failed, read_log_end
from hyperplane.jobs.job_control import Submitted
from hyperplane.jobs.job_html import MOST_STEPS, list_nodes
from hyperplane.jobs.job_names import find_job
from hyperplane.jobs.job_progress import describe_duration, step_progress
from hyperplane.jobs.step_graph import draw_steps
from hyperplane.jobs.step_records import (
    USAGE_TITLES,
    describe_total_cost,
    describe_usage,
    read_step_records,
    show_parameters,
)
from hyperplane.jobs.store.job_records import Attempt, Job
from hyperplane.jobs.store.jobs_home import open_store
from hyperplane.reports.artifact_section import show_artifacts
from hyperplane.reports.gantt_chart import draw_gantt
from hyperplane.reports.page import escape, grid, note, page, preformatted, section, table
from hyperplane.reports.report_file import write_file
from hyperplane.reports.run_report import format_time, show_record
from hyperplane.reports.time_axis import TimeAxis

#: Most attempts of the table, logs, and records of steps and their clusters.
_ATTEMPTS, _LOGS, _RECORDS = 100, 10, 20
#: Most characters of these records together: one of a run of very many tasks and workers has about
#: half of a million.
_RECORD_LENGTH = 2_500_000
#: Most lines of the end of a log.
_LINES = 40


@check_call(outcome="nothing was written")
def save_job_report(job: str | Submitted, file: str | os.PathLike[str] = "job.html") -> Path:
    """Write the report of a pipeline job as one HTML file, which loads nothing.

    Parameters
    ----------
    job : str or Submitted
        The id of the job, a unique prefix of it, a run such as ``nightly#12``, the name of a
        pipeline for its newest job, or the result of the submission.
    file : path
        The file, whose folder exists. A file of this name is replaced.

    Returns
    -------
    pathlib.Path
        The absolute path of the file.

    Raises
    ------
    JobError
        If there is no such job.
    RequestError
        If the file cannot be written.

    Examples
    --------
    >>> save_job_report("3f0c", "flights.html")  # doctest: +SKIP
    PosixPath('/home/ada/flights.html')
    """
    return write_file(file, render_job_report(job))


@check_call
def render_job_report(job: str | Submitted) -> str:
    """Return the report of a pipeline job as an HTML page.

    Parameters
    ----------
    job : str or Submitted
        The id of the job, a unique prefix of it, a run such as ``nightly#12``, the name of a
        pipeline for its newest job, or the result of the submission.

    Returns
    -------
    str
        A page in UTF-8 for browsers. It has the ends of logs: what the steps have printed, and
        small previews of what they have saved.

    Raises
    ------
    JobError
        If there is no such job.

    Examples
    --------
    >>> render_job_report("3f0c")  # doctest: +SKIP
    '<!DOCTYPE html>...
    """
    store = open_store()
    found = find_job(store, job_control.to_job_id(job))
    attempts = store.attempts(found.id)
    runs = store.runs(found.machine, job_id=found.id)
    records = sorted(runs, key=lambda run: run.started)
    of_steps = read_step_records(store, found)
    title = f"Job {found.run_name or found.id}"
    return page(
        title,
        "en",
        f"<h1>{escape(title)}</h1>",
        table(_summary(found, of_steps)),
        section("Steps", *_show_steps(found, attempts, of_steps)),
        draw_attempts(attempts),
        list_attempts(attempts),
        show_artifacts(read_artifacts(store, found), found.output),
        section("Ends of logs", *_show_logs(found, attempts)),
        *_show_records(records),
    )


def _summary(job: Job, records: Mapping[str, RunRecord]) -> Iterator[tuple[str, str]]:
    yield "job", job.id
    yield "pipeline", job.pipeline_name
    yield "status", f"{job.status}{f': {job.reason}' if job.reason else ''}"
    yield "submitted", format_time(job.submitted)
    if job.resumed:
        yield "resumed", format_time(job.resumed)
    if job.started:
        yield "started", format_time(job.started)
    if took := describe_duration(job, time.time()):
        yield "took", took
    yield "runner", f"{job.runner}, submitted by {job.machine}"
    if job.tries:
        yield "tries", f"{job.tries} failed"
    if job.schedule:
        yield "schedule", job.schedule
    for name, value in show_parameters(job, records).items():
        yield "parameter", f"{name} = {value}"
    if cost := describe_total_cost(records.values()):
        yield "cost", cost


def _show_steps(
    job: Job, attempts: Sequence[Attempt], records: Mapping[str, RunRecord]
) -> Iterator[str]:
    """Yield the graph of the steps with their states, attempts and times, and a table of them."""
    states = step_progress(job, attempts, job.ended or time.time())
    nodes = list_nodes(job, states)
    if nodes and len(nodes) <= MOST_STEPS:
        # With the colors of states.
        yield make_output(draw_steps(nodes, {state.name: state for state in states}))
    shown = states[:MOST_STEPS]
    rows = (
        (
            state.name,
            state.status,
            state.detail,
            records[state.name].code[:SHOWN] if state.name in records else "",
            str(state.attempts or ""),
            format_duration(state.seconds) if state.counts else "",
            *describe_usage(records.get(state.name)),
        )
        for state in shown
    )
    titles = ("step", "state", "detail", "code", "attempts", "took", *USAGE_TITLES)
    yield grid(titles, rows, texts=4)
    if len(states) > len(shown):
        yield note(f"and {plural(len(states) - len(shown), 'more step')}, and no graph of so many")


def draw_attempts(attempts: Sequence[Attempt]) -> str:
    """Return a section with the attempts at each step over the time."""
    begun = [attempt for attempt in attempts if attempt.started]
    if not begun:
        return section("Steps over the time", note("No step has started."))
    first, now = min(attempt.started for attempt in begun), time.time()
    groups = [
        TaskGroupTimes(
            attempt.step,
            attempt.started - first,
            (attempt.ended or now) - first,
            1,
            has_failed(attempt),
            (attempt.ended or now) - attempt.started,
        )
        for attempt in begun
    ]
    axis = TimeAxis(max(1e-3, *(group.ended for group in groups)))
    chart = draw_gantt(merge_groups(groups, MAX_GROUPS), axis, "attempt")
    text = "A bar is an attempt, or attempts at chunks; it is underlined if one did not succeed."
    return section("Steps over the time", chart, note(text))


def list_attempts(attempts: Sequence[Attempt]) -> str:
    """Return a section with a table of attempts: of many, those that failed and the longest."""
    ranked = sorted(attempts, key=lambda each: (not has_failed(each), each.started - each.ended))
    shown = ranked[:_ATTEMPTS]
    titles = ("step", "status", "reason", "chunk", "attempt", "exit code", "time")
    rows = (
        (
            attempt.step,
            attempt.status,
            attempt.reason,
            "" if attempt.chunk < 0 else str(attempt.chunk),
            str(attempt.number),
            "" if attempt.exit_code is None else str(attempt.exit_code),
            format_duration(attempt.ended - attempt.started) if attempt.ended else "",
        )
        for attempt in sorted(shown, key=lambda attempt: attempt.started)
    )
    left = len(attempts) - len(shown)
    text = "which did not fail, or took less time"
    more = note(f"{plural(left, 'more attempt')}, {text}") if left else ""
    return section("Attempts", grid(titles, rows, texts=3), more)


def _show_records(records: Sequence[RunRecord]) -> Iterator[str]:
    """Yield the records of steps and of their clusters, as long as the page stays small."""
    size, left = 0, records[_RECORDS:]
    for record in records[:_RECORDS]:
        title = f"{'Cluster of step' if record.cluster else 'Step'} {record.step}"
        text = section(title, *show_record(record))
        if size + len(text) > _RECORD_LENGTH:
            left = [*left, record]
            continue
        size += len(text)
        yield text
    if left:
        text = "'hyperplane history list' names them, and 'hyperplane report' writes one of them"
        yield note(f"{plural(len(left), 'record')} left out: {text}")


def _show_logs(job: Job, attempts: Sequence[Attempt]) -> Iterator[str]:
    """Yield the ends of the logs of failed attempts; of the last attempt of each step if none."""
    steps = {step.name: step for step in job.steps}
    logged = [attempt for attempt in attempts if attempt.log]
    last = {attempt.step: attempt for attempt in logged}
    shown = [attempt for attempt in logged if has_failed(attempt)] or list(last.values())
    for attempt in shown[-_LOGS:]:
        chunk = "" if attempt.chunk < 0 else f", chunk {attempt.chunk}"
        yield note(f"{attempt.step}{chunk}, attempt {attempt.number}: {attempt.status}")
        yield preformatted(read_log_end(job, attempt, steps.get(attempt.step), _LINES))
