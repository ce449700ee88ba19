"""The report of a pipeline job: its steps over the time, attempts, ends of logs, and records."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from hyperplane.core.public_calls import check_call
from hyperplane.core.units import format_duration, plural
from hyperplane.guard.task_group_times import MAX_GROUPS, merge_groups
from hyperplane.history.timeline import TaskGroupTimes
from hyperplane.jobs import job_control
from hyperplane.jobs.artifacts import read_artifacts
from hyperplane.jobs.attempt_logs import has_failed, read_log_end
from hyperplane.jobs.job_control import Submitted
from hyperplane.jobs.job_names import find_job
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
    runs = store.runs(found.machine, pipeline=found.pipeline_name)
    records = sorted((run for run in runs if run.job == found.id), key=lambda run: run.started)
    title = f"Job {found.run_name or found.id}"
    return page(
        title,
        "en",
        f"<h1>{escape(title)}</h1>",
        table(_summary(found)),
        draw_attempts(attempts),
        list_attempts(attempts),
        show_artifacts(read_artifacts(store, found), found.output),
        section("Ends of logs", *_show_logs(found, attempts)),
        *(
            section(
                f"{'Cluster of step' if record.cluster else 'Step'} {record.step}",
                *show_record(record),
            )
            for record in records[:_RECORDS]
        ),
        note(f"{plural(len(records) - _RECORDS, 'record')} left out")
        if len(records) > _RECORDS
        else "",
    )


def _summary(job: Job) -> Iterator[tuple[str, str]]:
    yield "job", job.id
    yield "pipeline", job.pipeline_name
    yield "status", f"{job.status}{f': {job.reason}' if job.reason else ''}"
    yield "submitted", format_time(job.submitted)
    if job.started:
        ended = job.ended or time.time()
        yield "started", f"{format_time(job.started)}, {format_duration(ended - job.started)}"
    yield "runner", f"{job.runner}, submitted by {job.machine}"
    if job.tries:
        yield "tries", f"{job.tries} failed"
    if job.schedule:
        yield "schedule", job.schedule


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
    """Return a section with a table of attempts, with those that failed if there are many."""
    shown = sorted(attempts, key=lambda attempt: not has_failed(attempt))[:_ATTEMPTS]
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
    more = note(f"{plural(left, 'more attempt')}, which did not fail first") if left else ""
    return section("Attempts", grid(titles, rows, texts=3), more)


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
