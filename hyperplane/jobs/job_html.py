"""A job and lists of jobs as HTML for a notebook."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from hyperplane.core.html_output import (
    Markup,
    escape,
    make_bar,
    make_chip,
    make_file_link,
    make_link,
    make_output,
    make_rows,
    make_table,
)
from hyperplane.core.units import format_duration, format_local_time, plural
from hyperplane.jobs.artifact_html import show_artifacts
from hyperplane.jobs.attempt_logs import read_log_end
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.requirements import INSTALL_STEP
from hyperplane.jobs.execution.step_command import notebook_output_path, working_folder
from hyperplane.jobs.job_names import find_given_name
from hyperplane.jobs.job_progress import (
    StepProgress,
    describe_duration,
    describe_duration_or_wait,
    step_progress,
    to_plain_line,
)
from hyperplane.jobs.step_graph import Node, draw_steps, find_state_style
from hyperplane.jobs.store.artifact_records import Artifact
from hyperplane.jobs.store.job_records import DONE, IN_PROGRESS, Attempt, Job, WorkUnit

#: Most steps, and most jobs of a list, that are shown; of more the most important ones.
MOST_STEPS = MOST_JOBS = 100
#: Logs and their lines that are shown.
MOST_LOGS, LOG_LINES = 5, 10
#: Characters of the output of a job that are shown.
_OUTPUT_LENGTH = 2000
#: Chunks whose executed notebooks and reasons are shown for a step.
_MOST_CHUNKS = 5


def render_job(
    job: Job,
    attempts: Sequence[Attempt],
    now: float | None = None,
    *,
    artifacts: Sequence[Artifact] = (),
) -> str:
    """Return a job with the graph of its steps, their attempts, logs and files.

    Parameters
    ----------
    job : Job
        The job.
    attempts : sequence of Attempt
        All attempts at its steps.
    now : float, optional
        Seconds since 1970 until which the time of running steps is counted; now by default.
    artifacts : sequence of Artifact
        What the steps have saved.
    """
    now = time.time() if now is None else now
    states = step_progress(job, attempts, now)
    steps = {step.name: step for step in job.steps}
    latest: dict[str, list[Attempt]] = {}
    for attempt in {(each.step, each.chunk): each for each in attempts}.values():
        latest.setdefault(attempt.step, []).append(attempt)
    shown = _choose_steps(states)
    parts: list[str] = [make_rows(_list_facts(job, states, now))]
    nodes = list_nodes(job, states)
    if nodes and len(shown) == len(states):
        parts.append(draw_steps(nodes, {each.name: each for each in states}))
    parts.append(
        make_table(
            ("step", "state", "attempts", "started", "took", "files"),
            (
                _list_cells(job, state, steps.get(state.name), latest.get(state.name, ()))
                for state in shown
            ),
        )
    )
    if hidden := Counter(state.status for state in states) - Counter(each.status for each in shown):
        counts = ", ".join(f"{count:,} {status}" for status, count in hidden.items())
        parts.append(Markup(f"<div>{escape(f'and {counts}')}</div>"))
    shown_attempts = [each for state in shown for each in latest.get(state.name, ())]
    parts += _list_logs(job, steps, shown_attempts)
    if artifacts:
        parts += show_artifacts(artifacts)
    return make_output(*parts)


def _choose_steps(states: Sequence[StepProgress]) -> list[StepProgress]:
    """Return the steps that are shown: failed ones first, then running ones, in their order."""
    ranks = {"hp-bad": 0, "hp-run": 1, "hp-warn": 2, "hp-good": 3, "hp-idle": 4}
    numbers = sorted(
        range(len(states)), key=lambda number: ranks[find_state_style(states[number].status)]
    )
    return [states[number] for number in sorted(numbers[:MOST_STEPS])]


def list_nodes(job: Job, states: Sequence[StepProgress]) -> list[Node]:
    """Return the steps of the graph; the installation of requirements is before all others.

    No steps if the definition of the job is damaged.
    """
    pipeline = job.readable_pipeline
    if pipeline is None:
        return []
    nodes = [Node(step.name, step.depends_on) for step in pipeline.steps]
    if states[0].name != INSTALL_STEP or pipeline.requirements is None:
        return nodes
    first = (INSTALL_STEP,)
    return [Node(INSTALL_STEP, ()), *(Node(name, deps or first) for name, deps in nodes)]


def _list_facts(job: Job, states: Sequence[StepProgress], now: float) -> Iterator[tuple[str, str]]:
    done = sum(state.status == DONE for state in states)
    took = describe_duration_or_wait(job, now)
    style = find_state_style(job.status)
    yield "job", f"{job.run_name} ({job.id})"
    yield "pipeline", job.pipeline_name
    yield "status", Markup(f"{make_chip(job.status, style)}{escape(f', {took}')}")
    if job.reason:
        yield "reason", job.reason
    if job.readable_pipeline is None:
        yield "definition", "damaged; the steps that have begun are shown"
    yield "steps", make_bar(done / max(1, len(states)), f"{done:,} of {len(states):,} done", style)
    yield "submitted", f"{_format_time(job.submitted)} by {job.machine}, runner {job.runner}"
    if job.resumed:
        yield "resumed", _format_time(job.resumed)
    if job.dashboard:
        yield "dashboard", make_link(job.dashboard)
    if job.output is not None:
        yield "output", _cut(job.output, _OUTPUT_LENGTH)
    yield "folder", make_file_link(job.folder)


def _format_time(seconds: float) -> str:
    return format_local_time(seconds) if seconds else ""


def _list_cells(
    job: Job, state: StepProgress, step: Step | None, attempts: Sequence[Attempt]
) -> Iterator[str]:
    yield state.name
    text = Markup(make_chip(state.status, find_state_style(state.status)))
    if state.chunks or state.cells:
        text = Markup(f"{text}{escape(f', {state.detail}')}")
    for attempt in [each for each in state.failed if each.reason][:_MOST_CHUNKS]:
        chunk = f"[{attempt.chunk}] " if attempt.chunk >= 0 else ""
        text = Markup(f"{text}<div>{escape(f'{chunk}{to_plain_line(attempt.reason)}')}</div>")
    if len(state.failed) > _MOST_CHUNKS:
        text = Markup(f"{text}<div>and {len(state.failed) - _MOST_CHUNKS:,} more</div>")
    yield text
    yield str(state.attempts or "")
    yield _format_time(min((each.started for each in attempts), default=0.0)).rpartition(" ")[2]
    yield format_duration(state.seconds) if state.counts else ""
    yield Markup("<br/>".join(_list_files(job, step, attempts)))


def _list_files(job: Job, step: Step | None, attempts: Sequence[Attempt]) -> Iterator[Markup]:
    """Yield links to the last log, to executed notebooks, and to the output of a step."""
    logged = [each for each in _sort_attempts(attempts) if each.log]
    if logged:
        yield make_file_link(Path(job.folder, logged[0].log), logged[0].log)
    if step is None:
        return
    if step.kind == "notebook":
        for attempt in _sort_attempts(attempts)[:_MOST_CHUNKS]:
            unit = WorkUnit(step.name, attempt.chunk, step.chunk_count)
            notebook = notebook_output_path(job, step, unit)
            if notebook.exists():
                yield make_file_link(notebook)
    if step.output:
        is_url = "://" in step.output
        path = Path(working_folder(job.pipeline, step), step.output)
        yield make_link(step.output) if is_url else make_file_link(path)


def _sort_attempts(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return attempts, failed ones first, then running ones."""
    ranks = {DONE: 2, IN_PROGRESS: 1}
    return sorted(attempts, key=lambda attempt: (ranks.get(attempt.status, 0), -attempt.started))


def _list_logs(job: Job, steps: dict[str, Step], attempts: Sequence[Attempt]) -> Iterator[Markup]:
    """Yield the last lines of the logs of attempts that failed or run."""
    logged = [each for each in _sort_attempts(attempts) if each.log and each.status != DONE]
    for attempt in logged[:MOST_LOGS]:
        step = steps.get(attempt.step)
        unit = WorkUnit(attempt.step, attempt.chunk, 0 if step is None else step.chunk_count)
        title = f"{unit}, attempt {attempt.number}, {attempt.status}: last lines of its log"
        text = read_log_end(job, attempt, step, LOG_LINES)
        yield Markup(
            f'<details open="open"><summary>{escape(title)}</summary>'
            f"<pre>{escape(text)}</pre></details>"
        )
    if len(logged) > MOST_LOGS:
        more = f"and logs of {plural(len(logged) - MOST_LOGS, 'more attempt')}"
        yield Markup(f"<div>{escape(more)}</div>")


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"


def render_jobs(jobs: Sequence[Job], now: float | None = None) -> str:
    """Return jobs as a table; ``now`` is in seconds since 1970, by default the time of the call."""
    if not jobs:
        return make_output(Markup("<div>no jobs</div>"))
    now = time.time() if now is None else now
    counts = Counter(job.status for job in jobs)
    ended = sum(job.processed for job in jobs)
    text = f"{ended:,} of {plural(len(jobs), 'job')} have ended: " + ", ".join(
        f"{count:,} {status}" for status, count in counts.items()
    )
    shown = jobs[:MOST_JOBS]
    has_names = any(map(find_given_name, shown))
    names = ("name",) if has_names else ()
    titles = ("id", "run", *names, "pipeline", "status", "submitted", "took", "reason", "links")
    parts = [
        Markup(f"<div>{make_bar(ended / len(jobs), text)}</div>"),
        make_table(titles, (_list_job_cells(job, now, has_names) for job in shown)),
    ]
    if len(jobs) > MOST_JOBS:
        more = f"and {plural(len(jobs) - MOST_JOBS, 'more job')}"
        parts.append(Markup(f"<div>{escape(more)}</div>"))
    return make_output(*parts)


def _list_job_cells(job: Job, now: float, has_names: bool) -> Iterator[str]:
    yield job.id[:8]
    yield to_plain_line(job.run_name)
    if has_names:
        yield to_plain_line(find_given_name(job))
    yield to_plain_line(job.pipeline_name)
    yield make_chip(job.status, find_state_style(job.status))
    yield _format_time(job.submitted)
    yield describe_duration(job, now)
    yield to_plain_line(job.reason)[:200]
    links = [make_file_link(job.folder, "folder")]
    if job.dashboard:
        links.append(make_link(job.dashboard, "dashboard"))
    yield Markup(" ".join(links))
