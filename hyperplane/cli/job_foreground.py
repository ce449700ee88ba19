"""Jobs in the foreground of a terminal: run in this process, or watched while others run them."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from hyperplane.cli.job_options import INTERRUPTED
from hyperplane.cli.job_screen import Screen
from hyperplane.errors import HyperplaneError, JobStoreError
from hyperplane.jobs import cancel_marker
from hyperplane.jobs.processes import AttemptCommand, LocalProcess
from hyperplane.jobs.runners import resolve_options
from hyperplane.jobs.states import CANCELLED, IN_PROGRESS, Job, WorkUnit
from hyperplane.jobs.step_command import attempt_prefix
from hyperplane.jobs.store import JobStore
from hyperplane.jobs.submission_snapshot import folder_error, save_snapshot
from hyperplane.jobs.submitting import (
    cancellation_reason,
    capture_environment,
    ensure_supervisor,
    unread_parameter_warnings,
)
from hyperplane.jobs.supervisor import Supervisor, claim_job

#: Seconds between looks whether jobs have lost their supervisor.
_LOOK_AFTER = 5.0
#: Seconds between looks at a store that cannot be read.
_AWAY = 1.0
_BY_SIGNAL: dict[int, str] = {
    signal.SIGINT: "with Ctrl-C (SIGINT) where it ran",
    signal.SIGTERM: "with SIGTERM where it ran",
    signal.SIGHUP: "when its terminal was closed (SIGHUP)",
}


async def run_here(
    store: JobStore, job: Job, runner_options: Mapping[str, Any], *, quiet: bool
) -> Job:
    """Run a job in this process to its end.

    The first Ctrl-C, SIGTERM or SIGHUP, and a terminal or pipe that is gone, cancel it politely;
    the second one kills what still runs.
    """
    handed = capture_environment()
    try:
        claim = claim_job(job.place)
    except OSError as error:
        raise folder_error(job, error) from error
    try:
        # For the supervisor that continues the job when this terminal is killed.
        save_snapshot(
            job,
            handed.environment,
            resolve_options(job.runner, runner_options),
            unread_parameter_warnings(job),
        )
        store.add(job)
    except HyperplaneError:  # nothing is kept, so nothing is left
        claim.close()
        shutil.rmtree(job.place, ignore_errors=True)
        raise
    supervisor = Supervisor(store, handed, only=job.id, claim=claim)
    supervisor.receive({job.id: handed})
    ends = _Ends(store, job, supervisor)
    loop = asyncio.get_running_loop()
    for number in _BY_SIGNAL:
        loop.add_signal_handler(number, ends.asked, number)
    try:
        work = asyncio.ensure_future(supervisor.run())
        await asyncio.sleep(0)  # it has the job in hand now
        ends.ready()
        with Screen(store, [job.id], quiet=quiet) as screen:
            while True:
                try:
                    (now,), pause = screen.look()
                except OSError:
                    screen.close_eyes()
                    ends.polite("when its terminal or pipe was gone")
                    continue
                except JobStoreError as error:  # a database that is away comes back
                    if not error.passing:
                        raise
                    now, pause = job, _AWAY
                if work.done() and now.processed:
                    break
                await asyncio.wait({work}, timeout=pause)
                if work.done():
                    work.result()
                    if supervisor.write_error is not None:
                        now = _unwritten(now, supervisor.write_error)
                        break
    finally:
        for number in _BY_SIGNAL:
            loop.remove_signal_handler(number)
    return now


def _unwritten(job: Job, error: BaseException) -> Job:
    """A job that was cancelled and whose store cannot say so yet."""
    typer.echo(f"job {job.id} is cancelled, which could not be written down: {error}", err=True)
    try:
        cancel_marker.set_marker(job)
    except OSError:
        typer.echo(f"when it can: hyperplane job cancel {job.id[:8]}", err=True)
    return dataclasses.replace(job, status=CANCELLED)


class _Ends:
    """Ends a job when somebody asks for it: first politely, then surely."""

    def __init__(self, store: JobStore, job: Job, supervisor: Supervisor) -> None:
        self.store, self.job, self.supervisor = store, job, supervisor
        self._times, self._ready, self._why = 0, False, ""
        self._killing: asyncio.Task[object] | None = None

    def asked(self, number: int) -> None:
        self._times += 1
        if self._times == 1:
            self.polite(_BY_SIGNAL[number])
        elif self._killing is None:
            self._killing = asyncio.ensure_future(self._surely())

    def ready(self) -> None:
        """There is something to end from now on."""
        self._ready = True
        if self._why:
            self.supervisor.cancel_all(self._why)

    def polite(self, by: str) -> None:
        self._why = self._why or cancellation_reason(by)
        if self._ready:
            self.supervisor.cancel_all(self._why)

    async def _surely(self) -> None:
        chunks = {step.name: step.chunk_count for step in
                  self.job.pipeline.steps}  # fmt: skip
        running = [
            LocalProcess(AttemptCommand((), {}, "", attempt_prefix(self.job, unit, one.number)))
            for one in self.store.attempts(self.job.id)
            if one.status == IN_PROGRESS
            for unit in (WorkUnit(one.step, one.chunk, chunks.get(one.step, 0)),)
        ]
        await asyncio.gather(*(process.end(0.0) for process in running))


def watch_until_end(store: JobStore, ids: Sequence[str], *, quiet: bool) -> list[Job]:
    """Show jobs until all have ended; Ctrl-C ends the watching only."""
    looked, jobs = 0.0, list[Job]()
    with Screen(store, ids, quiet=quiet) as screen:
        try:
            while not jobs or not all(job.processed for job in jobs):
                if time.monotonic() - looked > _LOOK_AFTER:
                    ensure_supervisor(store)
                    looked = time.monotonic()
                jobs, pause = screen.look()
                time.sleep(0 if all(job.processed for job in jobs) else pause)
        except OSError:
            screen.close_eyes()
            raise typer.Exit(INTERRUPTED) from None
        except KeyboardInterrupt:
            found = store.get_many(ids).values()
            going = " ".join(job.id[:8] for job in found if not job.processed)
            typer.echo(f"\nnot watched any more, but going on: {going}", err=True)
            raise typer.Exit(INTERRUPTED) from None
    return jobs
