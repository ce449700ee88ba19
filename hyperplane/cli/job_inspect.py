"""``hyperplane job list`` and ``hyperplane job logs``: what there is, and what it wrote."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from hyperplane.cli.job_options import INTERRUPTED, IdArgument
from hyperplane.cli.job_screen import LOOK
from hyperplane.cli.output import JsonOption, new_table, show, write_json
from hyperplane.errors import Fault, JobError, check
from hyperplane.jobs import listing
from hyperplane.jobs.home import the_store
from hyperplane.jobs.states import DONE, IN_PROGRESS, Attempt, Job
from hyperplane.jobs.submitting import look_after
from hyperplane.jobs.tree import duration, plain

if TYPE_CHECKING:
    from hyperplane.jobs.store import JobStore

#: Characters of the columns of ``list`` with ids, statuses, dates and times, and between columns.
_FIXED = 8 + 11 + 16 + 8 + 8
#: Bytes that are read of a log at once.
_BLOCK = 1 << 16


def list_jobs(
    status: Annotated[
        list[str] | None,
        typer.Option(help="Only jobs with this status, as 'in progress'; several for several."),
    ] = None,
    limit: Annotated[int, typer.Option(help="Only so many, those submitted last.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Show jobs, those submitted last first."""
    found = listing.list_jobs(status, limit=limit)
    if as_json:
        write_json([job.as_dict() for job in found])
    elif found:
        _show(found)
    else:
        typer.echo("no such job" if status else "no job has been submitted")


def _show(jobs: Sequence[Job]) -> None:
    # What jobs are found by is whole on most terminals; their names and reasons give way, and on
    # narrow ones the pipeline is left out.
    left = max(0, Console().width - _FIXED)
    texts = {
        "name": [job.name for job in jobs],
        "pipeline": [plain(job.pipeline_name) for job in jobs],
    }
    if left < 3 * 8:
        del texts["pipeline"]
    most = max(8, min(32, left // (len(texts) + 1)))
    table = new_table(["id", *texts, "status", "submitted", "reason"], ["took"])
    for column in table.columns:
        column.no_wrap, column.overflow = True, "ellipsis"
    for number, values in enumerate(texts.values(), start=1):
        width = min(most, max(8, *map(len, values)))
        table.columns[number].max_width, left = width, left - width
    table.columns[-2].max_width = max(8, left)
    now = time.time()
    for job, *named in zip(jobs, *texts.values(), strict=True):
        took = duration((job.ended or now) - job.started) if job.started else ""
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(job.submitted))
        reason = plain(job.reason)[:200]
        table.add_row(job.id[:8], *named, job.status, at, reason, took)
    show(table)


def logs(
    id_: IdArgument,
    step: Annotated[str | None, typer.Option(help="Only of this step.")] = None,
    chunk: Annotated[int | None, typer.Option(help="Only of this chunk, from 0.")] = None,
    attempt: Annotated[int | None, typer.Option(help="Only of this attempt, from 1.")] = None,
    lines: Annotated[int | None, typer.Option(help="Only so many at the end.")] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on as more is written, until the job ends.")
    ] = False,
) -> None:
    """Show what one attempt wrote: of the step that failed last, or else that began last.

    With --follow it shows all attempts at all steps.
    """
    if lines is not None and lines < 1:
        check([Fault("--lines", str(lines), "at least 1")])
    store = the_store()
    job = store.get(id_)
    wanted = _Wanted(step, chunk, attempt)
    wanted.check(job)
    if follow:
        try:
            _follow(store, job, wanted, lines)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        return
    found = wanted.of(store.attempts(job.id))
    if not found:
        raise JobError(job.id, f"{wanted} has written nothing")
    latest = {(one.step, one.chunk): one for one in found}  # what failed once may be done since
    bad = [one for one in latest.values() if one.status not in (DONE, IN_PROGRESS)]
    last = (bad or found)[-1]
    _write_end(job.place / last.log, lines)


class _Wanted:
    """Which attempts somebody wants to see."""

    def __init__(self, step: str | None, chunk: int | None, attempt: int | None) -> None:
        self.step, self.chunk, self.attempt = step, chunk, attempt

    def check(self, job: Job) -> None:
        """Refuse a step that the job has not."""
        names = [step.name for step in job.pipeline.steps]
        if self.step is not None and self.step not in names:
            allowed = f"one of {', '.join(map(repr, names))}"
            check([Fault("--step", repr(self.step), allowed)])

    def of(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Those among all attempts of a job that have a log."""
        return [
            one
            for one in attempts
            if one.log
            and self.step in (None, one.step)
            and self.chunk in (None, one.chunk)
            and self.attempt in (None, one.number)
        ]

    def __str__(self) -> str:
        said = {"step": self.step, "chunk": self.chunk, "attempt": self.attempt}
        named = [f"{name} {value!r}" for name, value in said.items() if value is not None]
        return ", ".join(named) or "no step"


def _follow(store: JobStore, job: Job, wanted: _Wanted, lines: int | None) -> None:
    """Write what there is, and what is added, until the job has ended."""
    places: dict[str, int] = {}
    shown, looked = "", 0.0
    while True:
        if time.monotonic() - looked > 5:
            look_after(store)
            looked = time.monotonic()
        ended = store.get(job.id).processed  # before the logs: nothing is written after that
        for one in wanted.of(store.attempts(job.id)):
            file = job.place / one.log
            if one.log not in places:
                places[one.log] = 0 if lines is None else _start_of(file, lines)
            with suppress(FileNotFoundError):
                # A log that its limit has made shorter goes on where it ends now.
                places[one.log] = min(places[one.log], file.stat().st_size)
            while block := _block(file, places[one.log]):
                if shown != one.log:
                    chunk = f" [{one.chunk}]" if one.chunk >= 0 else ""
                    typer.echo(f"==> {one.step}{chunk}, attempt {one.number}")
                    shown = one.log
                places[one.log] += len(block)
                _write(block)
        if ended:
            return
        time.sleep(LOOK)


def _block(file: Path, place: int) -> bytes:
    try:
        with file.open("rb") as opened:
            opened.seek(place)
            return opened.read(_BLOCK)
    except FileNotFoundError:
        return b""


def _start_of(file: Path, lines: int) -> int:
    """The place in a file from which so many lines are left."""
    try:
        with file.open("rb") as opened:
            place = opened.seek(0, 2)
            found = 0
            while place:
                size = min(_BLOCK, place)
                place -= size
                opened.seek(place)
                block = opened.read(size)
                # The mark at the very end ends a line and begins none.
                end = size - 1 if not found and place + size == opened.seek(0, 2) else size
                while (at := block.rfind(b"\n", 0, end)) >= 0:
                    found += 1
                    if found == lines:
                        return place + at + 1
                    end = at
    except FileNotFoundError:
        pass
    return 0


def _write_end(file: Path, lines: int | None) -> None:
    """Write a log, or its last lines; in blocks, for it may be larger than the memory."""
    place = 0 if lines is None else _start_of(file, lines)
    while block := _block(file, place):
        place += len(block)
        _write(block)


def _write(text: bytes) -> None:
    typer.echo(text, nl=False)
