"""Show the progress of jobs: live trees on a terminal, otherwise a line for each change."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import typer

from hyperplane.jobs.handle import JobHandle
from hyperplane.jobs.job_progress import ProgressLines, render_tree, step_progress
from hyperplane.jobs.step_records import list_figures, read_step_records, show_parameters
from hyperplane.jobs.store.job_records import DONE, FAILED, IN_PROGRESS, TIMED_OUT, Job

if TYPE_CHECKING:
    from hyperplane.jobs.store.job_store import JobStore

#: Seconds between reads of the store; more if a read takes long.
POLL_INTERVAL = 0.2
#: Number of lines that are shown of the log of a failed step.
_TAIL_LINES = 20


class Screen:
    """Context manager that shows the progress of jobs; with ``quiet`` it only reads them."""

    def __init__(self, store: JobStore, ids: Sequence[str], *, quiet: bool) -> None:
        self.store, self.ids, self.quiet = store, ids, quiet
        self._changes = ProgressLines(several=len(ids) > 1)
        self._live: Any = None
        if not quiet and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
            from rich.console import Console
            from rich.live import Live

            console = Console(markup=False, highlight=False, emoji=False)
            self._live = Live(
                console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            )

    def __enter__(self) -> Screen:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            with suppress(OSError):
                self._live.stop()

    def refresh(self) -> tuple[list[Job], float]:
        """Read and show the jobs; return them and the seconds to wait before the next call.

        Raises
        ------
        OSError
            If the terminal or pipe was closed.
        """
        began = time.monotonic()
        jobs_by_id = self.store.get_many(self.ids)
        jobs = [jobs_by_id[id_] for id_ in self.ids]
        if not self.quiet:
            self._show(jobs)
        return jobs, max(POLL_INTERVAL, 5 * (time.monotonic() - began))

    def detach(self) -> None:
        """Stop all output, because the terminal was closed."""
        self.quiet, self._live = True, None
        # Python flushes the buffer at its exit, which would fail again.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)

    def _show(self, jobs: Sequence[Job]) -> None:
        now = time.time()
        trees = []
        for job in jobs:
            attempts = self.store.attempts(job.id)
            states = step_progress(job, attempts, now)
            if self._live is not None:
                trees.append(render_tree(job, states, now))
                continue
            for line in self._changes.lines(job, attempts, states, now):
                typer.echo(line)
        if self._live is not None:
            from rich.console import Group

            if not sys.stdout.isatty():  # rich would write nothing and raise no error
                raise OSError("the terminal is gone")
            self._live.update(Group(*trees), refresh=True)


def show_end(job: Job) -> None:
    """Print the end of the log of a failed job to standard error."""
    if job.status not in (FAILED, TIMED_OUT):
        return
    text = JobHandle(job.id).logs(lines=_TAIL_LINES)
    if text:
        typer.echo(f"\nThe end of the log (hyperplane job logs {job.id[:8]} shows all):", err=True)
        typer.echo(text, err=True)


def job_document(job: Job, store: JobStore) -> dict[str, Any]:
    """Return a job with its steps as a JSON document."""
    attempts = store.attempts(job.id)
    records = read_step_records(store, job)
    steps = [
        {
            "name": state.name,
            "status": state.status,
            "seconds": round(state.seconds, 3),
            "attempts": state.attempts,
            "chunks": state.chunks,
            "chunks_done": state.counts.get(DONE, 0) if state.chunks else 0,
            "reasons": [attempt.reason for attempt in state.failed],
            "logs": [
                str(job.folder_path / attempt.log)
                for attempt in attempts
                if attempt.step == state.name and attempt.log and attempt.status != IN_PROGRESS
            ],
            "usage": list_figures(records.get(state.name)),
        }
        for state in step_progress(job, attempts, time.time())
    ]
    return {**job.as_dict(), "parameters": show_parameters(job, records), "steps": steps}
