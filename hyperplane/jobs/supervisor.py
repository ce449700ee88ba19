"""``python -m hyperplane.jobs.supervisor``: the process that carries this user's jobs on.

There is one for each store and user of a machine, started by whoever submits first. It ends when
there has been nothing to do for a while. If it is killed, the next one that asks for the state of a
job starts another, which goes on with what runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from hyperplane import config
from hyperplane.engines import job_clusters, records
from hyperplane.errors import HyperplaneError, JobStoreError
from hyperplane.jobs import cancel_marker, submission_snapshot, supervisor_client
from hyperplane.jobs.adoption import can_adopt
from hyperplane.jobs.backoff import Backoff, is_disk_full, is_retryable
from hyperplane.jobs.capacity import Capacity
from hyperplane.jobs.home import open_store, this_machine
from hyperplane.jobs.job_scheduler import JobScheduler
from hyperplane.jobs.states import FAILED, OPEN, Job
from hyperplane.jobs.step_command import SubmissionEnvironment
from hyperplane.jobs.store import JobStore
from hyperplane.jobs.submitting import capture_environment
from hyperplane.units import parse_seconds

_log = logging.getLogger(__name__)
#: Seconds between looks at the store, for what nobody has told us of.
TICK = 0.5
#: Jobs that are carried on at once; others are pending.
JOBS_AT_ONCE = 100


class Supervisor:
    """Carries on all open jobs of this machine, or only some.

    Parameters
    ----------
    store : JobStore
        Where they are.
    handed : Handed
        For jobs whose submission has told us nothing; what is kept of that goes before it.
    only : str, optional
        The id of the only job to carry on.
    claim : optional
        What :func:`claimed` gave for that job.
    """

    def __init__(
        self,
        store: JobStore,
        handed: SubmissionEnvironment,
        only: str | None = None,
        claim: Any = None,
    ) -> None:
        self.store, self.only, self._default, self._claim = store, only, handed, claim
        self._handed: dict[str, SubmissionEnvironment] = {}
        self._conductors: dict[str, JobScheduler] = {}
        self._running: dict[asyncio.Task[None], str] = {}
        self._woken, self._first, self._busy_until = asyncio.Event(), True, 0.0
        self._capacity = Capacity.detect()
        self._backoff, self._why = Backoff(_log.warning), ""
        #: Why the end of the only job could not be written down; None when it was.
        self.write_error: BaseException | None = None

    def receive(self, handed: dict[str, SubmissionEnvironment]) -> None:
        """Somebody submits, resumes or cancels a job."""
        self._handed.update(handed)
        self._busy_until = time.monotonic()  # its job comes
        self._woken.set()

    def has_waiting_jobs(self) -> bool:
        """Whether a job waits that nobody carries on; and at first, when nobody knows."""
        first, self._first = self._first, False
        return first or any(can_adopt(self.store.get(job_id)) for job_id in self._open())

    def cancel_all(self, why: str) -> None:
        """End all jobs that are carried on, at once, whether or not that can be written down."""
        self._why = self._why or why
        self._backoff.retry_now()
        self._woken.set()
        for conductor in self._conductors.values():
            conductor.cancel(why)

    async def run(self, linger: float = 0.0) -> None:
        """Carry on until there has been nothing to do for so many seconds."""
        self._busy_until = time.monotonic()
        while True:
            self._woken.clear()
            try:
                self._round()
            except (JobStoreError, OSError) as error:
                await self._failed(error)
            if self.write_error is not None:
                return
            if self._running or self._backoff.is_failing:
                self._busy_until = time.monotonic()
            elif time.monotonic() - self._busy_until >= linger:
                return
            await self._something()

    async def _failed(self, error: BaseException) -> None:
        """Wait for room on a full disk, and for a database that is away; else end."""
        if not is_retryable(error):
            if self.only is not None:  # or else its steps go on, and are found by the next one
                for conductor in self._conductors.values():
                    await conductor.end_processes()
            raise error
        if self._why and not self._running:
            self.write_error = error
            return
        self._backoff.record_failure(error)

    def _round(self) -> None:
        if self.only is None:
            self.store.expire_pending(this_machine())
        self._begin()
        self._cancel()
        self._note_dashboards()

    def _begin(self) -> None:
        if self._backoff.is_waiting:
            return
        wanting = self._open()
        if self._backoff.is_expired or not (wanting or self._running):
            self._backoff.record_success()
        for job_id in wanting:
            if len(self._conductors) >= JOBS_AT_ONCE:
                return
            job = self.store.get(job_id)
            if self._claim is None and not can_adopt(job):
                continue
            try:
                claim, self._claim = self._claim or claim_job(job.place), None
                if claim is None:  # somebody runs it in the foreground
                    continue
                submission_snapshot.adopt_job(job)
                conductor = JobScheduler(self.store, job, self._capacity, self._handed_for(job))
            except OSError as error:
                if is_disk_full(error):
                    raise
                wrong = f"its folder cannot be used: {error}"
                failed = {"status": FAILED, "reason": wrong, "ended": time.time()}
                self.store.update(job.id, if_status=OPEN, **failed)
                continue
            self._conductors[job.id] = conductor
            if self._why or cancel_marker.has_marker(job):
                conductor.cancel(self._why or "cancelled while the disk of its folder was full")
            task = asyncio.ensure_future(_run_claimed(claim, conductor))
            task.add_done_callback(lambda _: self._woken.set())
            self._running[task] = job.id

    def _handed_for(self, job: Job) -> SubmissionEnvironment:
        # Kept until the job has ended: after a full disk it is carried on once more.
        if job.id in self._handed:
            return self._handed[job.id]
        return SubmissionEnvironment(
            submission_snapshot.load_snapshot(job).apply_to(self._default.environment)
        )

    def _open(self) -> list[str]:
        """Jobs that nobody carries on, the oldest first."""
        found = self.store.open_ids(this_machine())
        wanted = [job_id for job_id in found if self.only in (None, job_id)]
        return [job_id for job_id in wanted if job_id not in self._conductors]

    def _cancel(self) -> None:
        for job_id in self.store.cancel_requests(OPEN):
            if job_id in self._conductors:
                self._conductors[job_id].cancel()

    def _note_dashboards(self) -> None:
        """Keep the addresses of the clusters that steps have now."""
        for job_id, conductor in self._conductors.items():
            now = next(reversed(job_clusters.dashboards(conductor.job.place)), "")
            if now != conductor.dashboard:
                conductor.dashboard = now
                self.store.update(job_id, if_status=OPEN, dashboard=now)

    async def _something(self) -> None:
        """Wait until a job ends, somebody tells us something, or a while has passed."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._woken.wait(), TICK)
        for task in [task for task in self._running if task.done()]:
            job_id, error = self._running.pop(task), task.exception()
            if isinstance(error, JobStoreError) or (error is not None and is_retryable(error)):
                await self._failed(error)
            elif error is not None:
                _log.warning("job %s: %s", job_id, str(error).splitlines()[:1])
            else:
                self._backoff.record_success()
                self._handed.pop(job_id, None)
                with contextlib.suppress(OSError):
                    records.read_all()  # removes what clusters of killed steps have left
            del self._conductors[job_id]


def claim_job(folder: Path) -> Any:
    """The lock of a job, which goes with the process that has it; None when another one has."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = (folder / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


async def _run_claimed(claim: Any, conductor: JobScheduler) -> None:
    with claim:
        await conductor.run()


async def _run_supervisor() -> None:
    """Be the supervisor of this user and store, unless there is one."""
    with supervisor_client.hold_supervisor_lock() as first:
        if not first:
            return
        # Of the configuration that a program has set, steps know nothing.
        os.environ.pop(supervisor_client.INHERITED_CONFIG, None)
        backoff, supervisor = Backoff(_log.warning), None
        while True:
            try:
                supervisor = supervisor or Supervisor(open_store(), capture_environment())
                await _serve_requests(supervisor)
            except (JobStoreError, OSError) as error:
                if not is_retryable(error):
                    raise
                await asyncio.sleep(backoff.record_failure(error))
            else:
                return


async def _serve_requests(supervisor: Supervisor) -> None:
    linger = max(1.0, float(parse_seconds(config.jobs().linger)))
    while supervisor.has_waiting_jobs():
        # Whoever comes after the last look below finds no socket, and starts another one.
        async with supervisor_client.listen(supervisor.receive):
            await supervisor.run(linger)


if __name__ == "__main__":
    # The shell that starts this in the background makes it ignore SIGINT.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        asyncio.run(_run_supervisor())
    except HyperplaneError as told:
        _log.error("%s", told)
        sys.exit(1)
