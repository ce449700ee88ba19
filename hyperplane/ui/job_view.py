"""One job: its steps as a graph and over the time, attempts, and the ends of their logs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from hyperplane.core.errors import JobError
from hyperplane.core.html_output import Markup, make_bar, make_chip, make_link
from hyperplane.core.units import format_duration, plural
from hyperplane.jobs import job_control
from hyperplane.jobs.artifacts import read_artifacts
from hyperplane.jobs.attempt_logs import has_failed, read_log_end
from hyperplane.jobs.job_html import list_nodes
from hyperplane.jobs.job_names import find_job
from hyperplane.jobs.job_progress import StepProgress, describe_duration, step_progress
from hyperplane.jobs.step_graph import draw_steps, find_state_style
from hyperplane.jobs.store.artifact_records import Artifact
from hyperplane.jobs.store.job_records import DONE, IN_PROGRESS, Attempt, Job, WorkUnit
from hyperplane.jobs.submission.masked_parameters import mask_parameters
from hyperplane.reports import render_job_report
from hyperplane.reports.job_report import draw_attempts, list_attempts
from hyperplane.ui.artifact_view import JOB_SIZE, make_artifact_table
from hyperplane.ui.elements import (
    make_action,
    make_facts,
    make_log,
    make_note,
    make_page_link,
    make_path,
    make_section,
    make_table,
    make_time,
    shorten,
)
from hyperplane.ui.job_store import open_job_store
from hyperplane.ui.view import PageNotFound, PageRequest, View

#: Seconds between updates while the job has not ended.
_SECONDS = 2.0
#: Most steps of the graph and of the table, most logs, and the lines of each.
_GRAPH_STEPS, _STEPS, _LOGS, _LINES = 100, 500, 12, 40
#: Characters of the output of a job that are shown.
_OUTPUT_LENGTH = 2000


def show_job(request: PageRequest) -> View:
    """Return a job in its current state."""
    job = _find(request)
    store = open_job_store()
    artifacts = read_artifacts(store, job)
    attempts = store.attempts(job.id)
    return describe_job(job, attempts, request.allow_actions, time.time(), artifacts)


def _find(request: PageRequest) -> Job:
    try:
        return find_job(open_job_store(), request.names["id"])
    except JobError as error:
        raise PageNotFound(str(error)) from error


def describe_job(
    job: Job,
    attempts: Sequence[Attempt],
    allow_actions: bool,
    now: float,
    artifacts: Sequence[Artifact] = (),
) -> View:
    """Return a job with its attempts; ``now`` is in seconds since 1970."""
    states = step_progress(job, attempts, now)
    parts = [make_facts(_list_facts(job, states, now))]
    if allow_actions and not job.processed:
        path = make_path("jobs", job.id, "cancel")
        text = (
            "This ends the processes of its steps. Finished steps are kept; a job can be resumed."
        )
        parts.append(make_action(path, "Cancel this job", text))
    parts += [
        make_section("steps", "Steps", *_show_steps(job, states)),
        *_show_artifacts(job, artifacts),
        make_section("logs", "Ends of logs", *_show_logs(job, attempts)),
        Markup(draw_attempts(attempts)),
        Markup(list_attempts(attempts)),
    ]
    seconds = 0.0 if job.processed else _SECONDS
    return View(f"Job {job.run_name}", tuple(parts), seconds, f"{job.run_name}: {job.status}")


def _list_facts(job: Job, states: Sequence[StepProgress], now: float) -> Iterator[tuple[str, str]]:
    done = sum(state.status == DONE for state in states)
    style = find_state_style(job.status)
    pipeline = job.pipeline_name
    yield "status", make_chip(job.status, style)
    yield "reason", job.reason
    yield "steps", make_bar(done / max(1, len(states)), f"{done:,} of {len(states):,} done", style)
    yield "pipeline", make_page_link(make_path("jobs", pipeline=pipeline), pipeline)
    yield "name", job.name
    yield "id", job.id
    yield "submitted", make_time(job.submitted)
    yield "resumed", make_time(job.resumed) if job.resumed else ""
    yield "started", make_time(job.started)
    yield "ended", make_time(job.ended)
    yield "took", describe_duration(job, now)
    yield "runner", f"{job.runner}, submitted by {job.machine}"
    path = make_path("jobs", schedule=job.schedule)
    yield "schedule", make_page_link(path, job.schedule) if job.schedule else ""
    yield "dashboard", make_link(job.dashboard) if job.dashboard else ""
    for name, value in mask_parameters(job.parameters).items():
        yield "parameter", f"{name} = {value}"
    yield "output", (job.output or "")[:_OUTPUT_LENGTH]
    yield "folder", job.folder
    yield "report", make_page_link(make_path("jobs", job.id, "report"), "as one page to save")


def _show_steps(job: Job, states: Sequence[StepProgress]) -> Iterator[str]:
    """Yield the graph, and a table with the same facts."""
    nodes = list_nodes(job, states)
    if nodes and len(nodes) <= _GRAPH_STEPS:
        yield draw_steps(nodes, {state.name: state for state in states})
    before = {node.name: node.depends_on for node in nodes}
    rows = (
        (
            state.name,
            make_chip(state.status, find_state_style(state.status)),
            state.detail,
            ", ".join(before.get(state.name, ())),
            format_duration(state.seconds) if state.counts else "",
        )
        for state in states[:_STEPS]
    )
    titles = ("step", "status", "detail", "waits for", "took")
    yield make_table("Steps in the order of the pipeline", titles, rows, numbers=1)
    if len(states) > _STEPS:
        yield make_note(f"and {plural(len(states) - _STEPS, 'more step')}")


def _show_artifacts(job: Job, artifacts: Sequence[Artifact]) -> Iterator[Markup]:
    """Yield a section with the newest artifacts, if there are any."""
    if not artifacts:
        return
    newest = artifacts[: -JOB_SIZE - 1 : -1]
    path = make_path("jobs", job.id, "artifacts")
    link = make_page_link(path, f"All {plural(len(artifacts), 'artifact')}, with previews")
    table = make_artifact_table(job, newest, "What the steps have saved, the newest first")
    yield make_section("artifacts", "Artifacts", table, link)


def _show_logs(job: Job, attempts: Sequence[Attempt]) -> Iterator[str]:
    """Yield the ends of the logs of the last attempts: failed and running ones are unfolded."""
    steps = {step.name: step for step in job.steps}
    latest = {(each.step, each.chunk): each for each in attempts if each.log}
    ranks = {DONE: 2, IN_PROGRESS: 1}
    logged = sorted(latest.values(), key=lambda each: (ranks.get(each.status, 0), -each.started))
    if not logged:
        yield make_note("No step has started.")
    for attempt in logged[:_LOGS]:
        step = steps.get(attempt.step)
        unit = WorkUnit(attempt.step, attempt.chunk, 0 if step is None else step.chunk_count)
        title = f"{shorten(str(unit))}, attempt {attempt.number}, {attempt.status}"
        text = read_log_end(job, attempt, step, _LINES)
        number = list(latest).index((attempt.step, attempt.chunk))
        is_open = has_failed(attempt) or attempt.status == IN_PROGRESS
        yield make_log(title, text, f"log-{number}", is_open)
    if len(logged) > _LOGS:
        yield make_note(f"and logs of {plural(len(logged) - _LOGS, 'more attempt')}")


def render_report(request: PageRequest) -> str:
    """Return the report of a job as one page."""
    return render_job_report(_find(request).id)


def cancel_job(request: PageRequest) -> str:
    """Cancel a job; return the path of its page."""
    job = _find(request)
    if job.processed:
        raise JobError(job.id, f"this job is already {job.status}")
    job_control.cancel(job.id, by="with hyperplane ui")
    return make_path("jobs", job.id)
