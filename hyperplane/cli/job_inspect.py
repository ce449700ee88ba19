"""``hyperplane job list`` and ``hyperplane job logs``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.cells import cell_len
from rich.console import Console

from hyperplane.cli.job_options import INTERRUPTED, IdArgument
from hyperplane.cli.job_screen import POLL_INTERVAL
from hyperplane.cli.output import JsonOption, new_table, show, write_json
from hyperplane.core.errors import Fault, JobError, check
from hyperplane.core.units import format_local_time, plural
from hyperplane.jobs import job_list
from hyperplane.jobs.job_control import ensure_supervisor
from hyperplane.jobs.job_names import find_given_name, find_job
from hyperplane.jobs.job_progress import describe_duration, to_plain_line
from hyperplane.jobs.store.job_records import DONE, IN_PROGRESS, Attempt, Job
from hyperplane.jobs.store.jobs_home import open_store
from hyperplane.jobs.submission.masked_parameters import mask_parameters

if TYPE_CHECKING:
    from hyperplane.jobs.store.job_store import JobStore

#: Characters of the fixed columns of ``list`` and of the space between columns.
_FIXED_WIDTH = 8 + 11 + 16 + 8 + 8
#: Minimum characters of the other columns.
_MIN_WIDTH = 8
#: Bytes that are read from a log at once.
_BLOCK = 1 << 16


def list_jobs(
    status: Annotated[
        list[str] | None,
        typer.Option(
            "--status",
            "--state",
            help="Only jobs with this status, such as 'in progress' or failed; may be repeated.",
        ),
    ] = None,
    pipeline: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only runs of this pipeline.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Only jobs submitted or resumed since a date, or within a duration such as 7d.",
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(help="Only jobs with this text in a name, an ID, the reason or a parameter."),
    ] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of jobs.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Show jobs, the newest first."""
    jobs = job_list.list_jobs(status, pipeline=pipeline, since=since, text=text, limit=limit)
    if as_json:
        write_json([
            {**job.as_dict(), "parameters": mask_parameters(job.parameters)} for job in jobs
        ])  # fmt: skip
    elif jobs:
        _show(jobs)
    else:
        filters = (pipeline, since, text)
        if any(value is not None for value in filters):
            typer.echo("no job matches")
        else:
            typer.echo("no job has this status" if status else "no job has been submitted")


def _show(jobs: Sequence[Job]) -> None:
    # IDs, names, run numbers, statuses and times are never cut: long names continue on the next
    # line. Only the reason is shortened.
    texts = {
        "run": [_describe_run(job) for job in jobs],
        "name": [find_given_name(job) for job in jobs],
    }
    if not any(texts["name"]):
        del texts["name"]
    remaining = max(len(texts) * _MIN_WIDTH, Console().width - _FIXED_WIDTH)
    max_width = max(_MIN_WIDTH, min(32, remaining // (len(texts) + 1)))
    table = new_table(["id", *texts, "status", "submitted", "reason"], ["took"])
    for column in table.columns:
        column.no_wrap, column.overflow = True, "ellipsis"
    for number, values in enumerate(texts.values(), start=1):
        width = min(max_width, max(_MIN_WIDTH, *map(cell_len, values)))
        column = table.columns[number]
        column.no_wrap, column.overflow, column.width = False, "fold", width
        remaining -= width
    table.columns[-2].max_width = max(_MIN_WIDTH, remaining)
    now = time.time()
    for job, *named in zip(jobs, *texts.values(), strict=True):
        took = describe_duration(job, now)
        at = format_local_time(job.submitted, "%Y-%m-%d %H:%M")
        reason = job_list.shorten_reason(job)[:200]
        table.add_row(job.id[:8], *named, job.status, at, reason, took)
    # Terminals that are narrower wrap the lines.
    show(table, min_width=_FIXED_WIDTH + (len(texts) + 1) * _MIN_WIDTH)


def _describe_run(job: Job) -> str:
    number = "" if job.number is None else f" #{job.number}"
    return f"{to_plain_line(job.pipeline_name)}{number}"


def logs(
    id_: IdArgument,
    step: Annotated[str | None, typer.Argument(help="Only logs of this step.")] = None,
    step_option: Annotated[
        str | None, typer.Option("--step", metavar="STEP", help="The same as STEP.")
    ] = None,
    chunk: Annotated[
        int | None, typer.Option(help="Only logs of the chunk with this number, from 0.")
    ] = None,
    attempt: Annotated[
        int | None, typer.Option(help="Only logs of the attempt with this number, from 1.")
    ] = None,
    lines: Annotated[
        int | None, typer.Option(help="Maximum number of lines; the last ones are shown.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Show new lines, too, until the job has ended.")
    ] = False,
) -> None:
    """Show the log of the last failed attempt, or of the last attempt if none has failed.

    With --follow the logs of all attempts of all steps are shown.
    """
    faults = []
    if lines is not None and lines < 1:
        faults.append(Fault("--lines", str(lines), "at least 1"))
    if step is not None and step_option is not None:
        faults.append(Fault("--step", repr(step_option), f"only one step; {step!r} is given, too"))
    check(faults)
    store = open_store()
    job = find_job(store, id_)
    selection = _AttemptFilter(step_option if step is None else step, chunk, attempt)
    selection.check(job)
    if follow:
        try:
            _follow(store, job, selection, lines)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        return
    all_attempts = store.attempts(job.id)
    attempts = selection.select(all_attempts)
    if not attempts:
        raise JobError(job.id, f"there is no log of {selection}; {_describe_logs(all_attempts)}")
    # Only the latest attempt counts: a failed chunk may have succeeded since.
    latest = {(entry.step, entry.chunk): entry for entry in attempts}
    failed = [entry for entry in latest.values() if entry.status not in (DONE, IN_PROGRESS)]
    shown = (failed or attempts)[-1]
    _write_end(job.folder_path / shown.log, lines)


def _describe_logs(attempts: Sequence[Attempt]) -> str:
    """Return a text with the attempts that have logs, at most five."""
    logged = [
        str(_AttemptFilter(entry.step, entry.chunk if entry.chunk >= 0 else None, entry.number))
        for entry in attempts
        if entry.log
    ]
    more = f"; and of {plural(len(logged) - 5, 'more attempt')}" if len(logged) > 5 else ""
    return f"there are logs of {'; '.join(logged[:5])}{more}" if logged else "no step has started"


class _AttemptFilter:
    """Selection of attempts by step, chunk and number."""

    def __init__(self, step: str | None, chunk: int | None, attempt: int | None) -> None:
        self.step, self.chunk, self.attempt = step, chunk, attempt

    def check(self, job: Job) -> None:
        """Raise RequestError for a step that the job does not have."""
        pipeline = job.readable_pipeline
        names = [step.name for step in pipeline.steps] if pipeline else []
        if self.step is not None and names and self.step not in names:
            allowed = f"a step of {to_plain_line(job.run_name)}: {', '.join(map(repr, names))}"
            check([Fault("step", repr(self.step), allowed)])

    def select(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Return the selected attempts that have a log."""
        return [
            attempt
            for attempt in attempts
            if attempt.log
            and self.step in (None, attempt.step)
            and self.chunk in (None, attempt.chunk)
            and self.attempt in (None, attempt.number)
        ]

    def __str__(self) -> str:
        criteria = {"step": self.step, "chunk": self.chunk, "attempt": self.attempt}
        named = [f"{name} {value!r}" for name, value in criteria.items() if value is not None]
        return ", ".join(named) or "any step"


def _follow(store: JobStore, job: Job, selection: _AttemptFilter, lines: int | None) -> None:
    """Write the logs, and what is added to them, until the job has ended."""
    offsets: dict[str, int] = {}
    current, checked = "", 0.0
    while True:
        if time.monotonic() - checked > 5:
            ensure_supervisor(store)
            checked = time.monotonic()
        # Read before the logs: if the job has ended, they are complete.
        ended = store.get(job.id).processed
        for attempt in selection.select(store.attempts(job.id)):
            file = job.folder_path / attempt.log
            if attempt.log not in offsets:
                offsets[attempt.log] = 0 if lines is None else _find_last_lines(file, lines)
            with suppress(FileNotFoundError):
                # A log that was shortened to its limit continues at its new end.
                offsets[attempt.log] = min(offsets[attempt.log], file.stat().st_size)
            while block := _read_block(file, offsets[attempt.log]):
                if current != attempt.log:
                    chunk = f" [{attempt.chunk}]" if attempt.chunk >= 0 else ""
                    typer.echo(f"==> {attempt.step}{chunk}, attempt {attempt.number}")
                    current = attempt.log
                offsets[attempt.log] += len(block)
                _write(block)
        if ended:
            return
        time.sleep(POLL_INTERVAL)


def _read_block(file: Path, offset: int) -> bytes:
    try:
        with file.open("rb") as opened:
            opened.seek(offset)
            return opened.read(_BLOCK)
    except FileNotFoundError:
        return b""


def _find_last_lines(file: Path, lines: int) -> int:
    """Return the offset of the last ``lines`` lines of a file."""
    try:
        with file.open("rb") as opened:
            offset = opened.seek(0, 2)
            line_breaks = 0
            while offset:
                size = min(_BLOCK, offset)
                offset -= size
                opened.seek(offset)
                block = opened.read(size)
                # A line break at the end of the file does not begin another line.
                end = size - 1 if not line_breaks and offset + size == opened.seek(0, 2) else size
                while (at := block.rfind(b"\n", 0, end)) >= 0:
                    line_breaks += 1
                    if line_breaks == lines:
                        return offset + at + 1
                    end = at
    except FileNotFoundError:
        pass
    return 0


def _write_end(file: Path, lines: int | None) -> None:
    """Write a log, or its last lines, in blocks, as it may be larger than the memory."""
    offset = 0 if lines is None else _find_last_lines(file, lines)
    while block := _read_block(file, offset):
        offset += len(block)
        _write(block)


def _write(text: bytes) -> None:
    typer.echo(text, nl=False)
