"""Run a job in this process, or show jobs that a supervisor runs until they have ended."""

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
from hyperplane.core.errors import HyperplaneError, JobStoreError
from hyperplane.jobs.execution.attempt_process import AttemptCommand, LocalProcess
from hyperplane.jobs.execution.job_folder import claim_job, mark_cancelled
from hyperplane.jobs.execution.step_command import attempt_prefix
from hyperplane.jobs.job_control import (
    cancellation_reason,
    ensure_supervisor,
    unread_parameter_warnings,
)
from hyperplane.jobs.runners.registry import resolve_options
from hyperplane.jobs.store.job_records import CANCELLED, IN_PROGRESS, Job, WorkUnit
from hyperplane.jobs.store.job_store import JobStore
from hyperplane.jobs.submission.submission_environment import capture_environment
from hyperplane.jobs.submission.submission_snapshot import folder_error, save_snapshot
from hyperplane.jobs.supervisor import Supervisor

#: Seconds between checks whether jobs have lost their supervisor.
_SUPERVISOR_CHECK_INTERVAL = 5.0
#: Seconds between attempts to read an unavailable store.
_STORE_RETRY_INTERVAL = 1.0
#: How a job was cancelled, by signal; a part of the job's reason.
_BY_SIGNAL: dict[int, str] = {
    signal.SIGINT: "with Ctrl-C (SIGINT) where it ran",
    signal.SIGTERM: "with SIGTERM where it ran",
    signal.SIGHUP: "when its terminal was closed (SIGHUP)",
}


async def run_in_foreground(
    store: JobStore, job: Job, runner_options: Mapping[str, Any], *, quiet: bool
) -> Job:
    """Run a job in this process to its end.

    The first Ctrl-C, SIGTERM or SIGHUP, or a closed terminal or pipe, cancels the job; the second
    signal kills its processes.
    """
    submission = capture_environment()
    try:
        claim = claim_job(job.folder_path)
    except OSError as error:
        raise folder_error(job, error) from error
    try:
        # If this process is killed, a supervisor continues the job with the snapshot.
        save_snapshot(
            job,
            submission.environment,
            resolve_options(job.runner, runner_options),
            unread_parameter_warnings(job),
        )
        store.add(job)
    except HyperplaneError:  # the job is not in the store, so nothing needs its folder
        claim.close()
        shutil.rmtree(job.folder_path, ignore_errors=True)
        raise
    supervisor = Supervisor(store, submission, only=job.id, claim=claim)
    supervisor.receive({job.id: submission})
    canceller = _JobCanceller(store, job, supervisor)
    loop = asyncio.get_running_loop()
    for number in _BY_SIGNAL:
        loop.add_signal_handler(number, canceller.handle_signal, number)
    try:
        supervision = asyncio.ensure_future(supervisor.run())
        await asyncio.sleep(0)  # lets the supervisor take the job
        canceller.enable()
        with Screen(store, [job.id], quiet=quiet) as screen:
            while True:
                try:
                    (current,), pause = screen.refresh()
                except OSError:
                    screen.detach()
                    canceller.cancel("when its terminal or pipe was gone")
                    continue
                except JobStoreError as error:  # a database may be unavailable for a while
                    if not error.passing:
                        raise
                    current, pause = job, _STORE_RETRY_INTERVAL
                if supervision.done() and current.processed:
                    break
                await asyncio.wait({supervision}, timeout=pause)
                if supervision.done():
                    supervision.result()
                    if supervisor.write_error is not None:
                        current = _report_unwritten(current, supervisor.write_error)
                        break
    finally:
        for number in _BY_SIGNAL:
            loop.remove_signal_handler(number)
    return current


def _report_unwritten(job: Job, error: BaseException) -> Job:
    """Report a cancelled job whose status could not be stored."""
    typer.echo(f"job {job.id} is cancelled, but its status could not be stored: {error}", err=True)
    try:
        mark_cancelled(job)
    except OSError:
        typer.echo(
            f"when the store is available, run: hyperplane job cancel {job.id[:8]}", err=True
        )
    return dataclasses.replace(job, status=CANCELLED)


class _JobCanceller:
    """Cancel a job at the first signal and kill its processes at the second."""

    def __init__(self, store: JobStore, job: Job, supervisor: Supervisor) -> None:
        self.store, self.job, self.supervisor = store, job, supervisor
        self._signal_count, self._enabled, self._reason = 0, False, ""
        self._killing: asyncio.Task[object] | None = None

    def handle_signal(self, number: int) -> None:
        """Cancel the job, or kill its processes if it was already cancelled by a signal."""
        self._signal_count += 1
        if self._signal_count == 1:
            self.cancel(_BY_SIGNAL[number])
        elif self._killing is None:
            self._killing = asyncio.ensure_future(self._kill())

    def enable(self) -> None:
        """Allow cancellation, once the supervisor has taken the job."""
        self._enabled = True
        if self._reason:
            self.supervisor.cancel_all(self._reason)

    def cancel(self, by: str) -> None:
        """Cancel the job, as soon as this is allowed; ``by`` is part of the reason."""
        self._reason = self._reason or cancellation_reason(by)
        if self._enabled:
            self.supervisor.cancel_all(self._reason)

    async def _kill(self) -> None:
        chunks = {step.name: step.chunk_count for step in self.job.pipeline.steps}
        running = []
        for attempt in self.store.attempts(self.job.id):
            if attempt.status == IN_PROGRESS:
                unit = WorkUnit(attempt.step, attempt.chunk, chunks.get(attempt.step, 0))
                prefix = attempt_prefix(self.job, unit, attempt.number)
                running.append(LocalProcess(AttemptCommand((), {}, "", prefix)))
        await asyncio.gather(*(process.end(0.0) for process in running))


def watch_until_end(store: JobStore, ids: Sequence[str], *, quiet: bool) -> list[Job]:
    """Show jobs until all have ended, and return them; Ctrl-C does not stop the jobs."""
    checked, jobs = 0.0, list[Job]()
    with Screen(store, ids, quiet=quiet) as screen:
        try:
            while not jobs or not all(job.processed for job in jobs):
                if time.monotonic() - checked > _SUPERVISOR_CHECK_INTERVAL:
                    ensure_supervisor(store)
                    checked = time.monotonic()
                jobs, pause = screen.refresh()
                time.sleep(0 if all(job.processed for job in jobs) else pause)
        except OSError:
            screen.detach()
            raise typer.Exit(INTERRUPTED) from None
        except KeyboardInterrupt:
            jobs = list(store.get_many(ids).values())
            running = " ".join(job.id[:8] for job in jobs if not job.processed)
            typer.echo(f"\nno longer watching; still running: {running}", err=True)
            raise typer.Exit(INTERRUPTED) from None
    return jobs
