"""``python -m hyperplane.jobs.supervisor``: the process that runs this user's jobs.

There is one for each user and store of a machine, started by the first submission. It exits after
some idle time. If it is killed, the next call that queries a job starts another one, which
reattaches to running steps. If another version of hyperplane is installed, it starts a supervisor
of that version and exits; if that one does not start, it continues.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any

from hyperplane import config
from hyperplane.clusters import job_dashboards, records
from hyperplane.core.errors import HyperplaneError, JobStoreError
from hyperplane.core.units import parse_seconds
from hyperplane.jobs import supervisor_client
from hyperplane.jobs.execution.job_folder import can_adopt, claim_job, is_marked_cancelled
from hyperplane.jobs.execution.job_scheduler import JobScheduler
from hyperplane.jobs.execution.resource_allocator import ResourceAllocator
from hyperplane.jobs.job_cleanup import clean_jobs
from hyperplane.jobs.notification_sender import NotificationSender
from hyperplane.jobs.notifications import Notification
from hyperplane.jobs.store.backoff import Backoff, is_disk_full, is_retryable
from hyperplane.jobs.store.job_records import FAILED, OPEN, Job
from hyperplane.jobs.store.job_store import JobStore
from hyperplane.jobs.store.jobs_home import jobs_folder, open_store, this_machine
from hyperplane.jobs.submission import submission_snapshot
from hyperplane.jobs.submission.submission_environment import (
    SubmissionEnvironment,
    capture_environment,
)

_log = logging.getLogger(__name__)
#: Seconds between polls of the store, for changes without a notification.
_POLL_SECONDS = 0.5
#: Maximum number of jobs that run concurrently; others are pending.
_MAX_JOBS = 100
#: Seconds between two removals of ended jobs, if the configuration has a limit for these.
_CLEANUP_SECONDS = 3600.0
#: Seconds between checks for another installed version.
_VERSION_CHECK_SECONDS = 2.0


class _InstalledVersion:
    """The installed version of hyperplane, and the version that this process has loaded."""

    def __init__(self) -> None:
        self._loaded = self._installed = self._read()
        self._checked = time.monotonic()

    def has_changed(self) -> bool:
        """Whether the last two checks found the same version, which is not the loaded one.

        A single check may find an incomplete installation.
        """
        if time.monotonic() - self._checked < _VERSION_CHECK_SECONDS:
            return False
        self._checked = time.monotonic()
        previous, self._installed = self._installed, self._read()
        return self._installed == previous and self._installed not in ("", self._loaded)

    @staticmethod
    def _read() -> str:
        try:
            # None if the folder of the metadata has no file yet.
            return importlib.metadata.version("hyperplane") or ""
        except (OSError, LookupError, ValueError, importlib.metadata.PackageNotFoundError):
            return ""  # a file may be incomplete


class Supervisor:
    """Run all open jobs of this machine, or only one.

    Parameters
    ----------
    store : JobStore
        Store of the jobs.
    submission : SubmissionEnvironment
        Default environment, for jobs whose submission has not sent one; variables of the job's
        snapshot override it.
    only : str, optional
        Id of the only job to run.
    claim : optional
        Lock of that job, as :func:`~hyperplane.jobs.execution.job_folder.claim_job` returns it.
    submissions : mapping of str to SubmissionEnvironment, optional
        Environments that an earlier Supervisor of this process received, by the id of the job.
    sender : NotificationSender, optional
        Sends the notifications of jobs; the caller closes it.
    """

    def __init__(
        self,
        store: JobStore,
        submission: SubmissionEnvironment,
        only: str | None = None,
        claim: Any = None,
        submissions: Mapping[str, SubmissionEnvironment] | None = None,
        sender: NotificationSender | None = None,
    ) -> None:
        self.store, self.only, self._default, self._claim = store, only, submission, claim
        #: Environments of submitted jobs, by the id of the job.
        self.submissions: dict[str, SubmissionEnvironment] = dict(submissions or {})
        self._schedulers: dict[str, JobScheduler] = {}
        self._running: dict[asyncio.Task[None], str] = {}
        self._wakeup, self._is_first_check, self._busy_until = asyncio.Event(), True, 0.0
        self._capacity, self._sender = ResourceAllocator.detect(), sender or NotificationSender()
        self._backoff, self._cancel_reason = Backoff(_log.warning), ""
        self._version = _InstalledVersion()
        #: Whether another version of hyperplane has been installed.
        self.is_outdated = False
        self._released: list[Any] = []
        self._cleanup: asyncio.Task[None] | None = None
        self._cleanup_at = 0.0
        #: Error that prevented the end of the only job from being stored.
        self.write_error: BaseException | None = None

    def receive(self, submissions: dict[str, SubmissionEnvironment]) -> None:
        """Remember the environments of submitted or resumed jobs, and poll the store."""
        self.submissions.update(submissions)
        self._busy_until = time.monotonic()  # the submitter adds the job to the store next
        self._wakeup.set()

    def has_waiting_jobs(self) -> bool:
        """Whether a job waits for a supervisor; True at the first call."""
        first, self._is_first_check = self._is_first_check, False
        return first or any(can_adopt(self.store.get(job_id)) for job_id in self._waiting_job_ids())

    def cancel_all(self, why: str) -> None:
        """Cancel all running jobs at once, whether or not that can be stored."""
        self._cancel_reason = self._cancel_reason or why
        self._backoff.retry_now()
        self._wakeup.set()
        for scheduler in self._schedulers.values():
            scheduler.cancel(why)

    async def run(self, linger: float = 0.0) -> None:
        """Run jobs until there has been nothing to do for ``linger`` seconds.

        If another version is installed, stop at once; steps continue.
        """
        self._busy_until = time.monotonic()
        while True:
            self._wakeup.clear()
            try:
                self._poll()
            except (JobStoreError, OSError) as error:
                await self._handle_failure(error)
            if self.write_error is not None:
                return
            if self._running or self._backoff.is_failing or self._sender.is_busy:
                self._busy_until = time.monotonic()
            elif time.monotonic() - self._busy_until >= linger and not self._is_cleaning:
                return
            await self._wait_for_event()
            # While nothing can be stored, a successor could not start either.
            if self.only is None and not self._backoff.is_failing and self._version.has_changed():
                self.is_outdated = True
                await self._release_jobs()
                return

    async def _release_jobs(self) -> None:
        """Stop supervising the jobs, but keep them locked; running steps continue."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        folders = {id_: scheduler.job.folder_path for id_, scheduler in self._schedulers.items()}
        # Also jobs that do not run yet, even if the submitter has not added them to the store.
        for job_id in self.submissions.keys() - folders.keys():
            if (folder := jobs_folder() / "jobs" / job_id).exists():
                folders[job_id] = folder
        self._released = [claim for folder in folders.values() if (claim := claim_job(folder))]

    def start_successor(self) -> None:
        """Start a supervisor of the installed version, and send it the environments of the jobs.

        Raises
        ------
        JobError
            If it does not start.
        """
        try:
            supervisor_client.notify_supervisor()
            for job_id, submission in self.submissions.items():
                supervisor_client.notify_supervisor(job_id, submission)
        finally:
            for claim in self._released:  # last: the successor takes each job once it is not locked
                claim.close()

    async def _handle_failure(self, error: BaseException) -> None:
        """Back off while a disk is full or the database unavailable; else raise."""
        if not is_retryable(error):
            # A process that runs one job in the foreground ends the steps; a supervisor leaves
            # them running for the next supervisor.
            if self.only is not None:
                for scheduler in self._schedulers.values():
                    await scheduler.end_processes()
            raise error
        if self._cancel_reason and not self._running:
            self.write_error = error
            return
        self._backoff.record_failure(error)

    @property
    def _is_cleaning(self) -> bool:
        return self._cleanup is not None and not self._cleanup.done()

    def _poll(self) -> None:
        if self.only is None:
            self._end_expired_jobs()
            if time.monotonic() >= self._cleanup_at and not self._is_cleaning:
                self._cleanup_at = time.monotonic() + _CLEANUP_SECONDS
                self._cleanup = asyncio.ensure_future(asyncio.to_thread(_clean_jobs))
        self._start_jobs()
        self._cancel_requested_jobs()
        self._store_dashboards()

    def _end_expired_jobs(self) -> None:
        """End jobs that exceeded their time limit before they began, and send this."""
        for job in self.store.expire_pending(this_machine()):
            snapshot = submission_snapshot.load_snapshot(job)
            if targets := snapshot.settings.notify:
                notice = Notification(job, message=snapshot.notify.message)
                self._sender.send(notice, self._submission_for(job).environment, targets)
            self.submissions.pop(job.id, None)

    def _start_jobs(self) -> None:
        if self._backoff.is_waiting:
            return
        job_ids = self._waiting_job_ids()
        if self._backoff.is_expired or not (job_ids or self._running):
            self._backoff.record_success()
        for job_id in job_ids:
            if len(self._schedulers) >= _MAX_JOBS:
                return
            job = self.store.get(job_id)
            if self._claim is None and not can_adopt(job):
                continue
            try:
                claim, self._claim = self._claim or claim_job(job.folder_path), None
                if claim is None:  # another process runs it in the foreground
                    continue
                submission_snapshot.adopt_job(job)
                scheduler = JobScheduler(
                    self.store, job, self._capacity, self._submission_for(job), self._sender
                )
            except OSError as error:
                if is_disk_full(error):
                    raise
                reason = f"cannot use the job's folder: {error}"
                failed = {"status": FAILED, "reason": reason, "ended": time.time()}
                self.store.update(job.id, if_status=OPEN, **failed)
                continue
            self._schedulers[job.id] = scheduler
            if self._cancel_reason or is_marked_cancelled(job):
                scheduler.cancel(
                    self._cancel_reason or "cancelled while the disk of its folder was full"
                )
            task = asyncio.ensure_future(_run_claimed(claim, scheduler))
            task.add_done_callback(lambda _: self._wakeup.set())
            self._running[task] = job.id

    def _submission_for(self, job: Job) -> SubmissionEnvironment:
        # Removed only after the job: one that a full disk has stopped is started again.
        if job.id in self.submissions:
            return self.submissions[job.id]
        return SubmissionEnvironment(
            submission_snapshot.load_snapshot(job).apply_to(self._default.environment)
        )

    def _waiting_job_ids(self) -> list[str]:
        """Return open jobs that this supervisor does not run, oldest first."""
        open_ids = self.store.open_ids(this_machine())
        wanted = [job_id for job_id in open_ids if self.only in (None, job_id)]
        return [job_id for job_id in wanted if job_id not in self._schedulers]

    def _cancel_requested_jobs(self) -> None:
        for job_id in self.store.cancel_requests(OPEN):
            if job_id in self._schedulers:
                self._schedulers[job_id].cancel()

    def _store_dashboards(self) -> None:
        """Store the dashboard addresses of the current clusters of steps."""
        for job_id, scheduler in self._schedulers.items():
            dashboard = next(
                reversed(job_dashboards.read_dashboards(scheduler.job.folder_path)), ""
            )
            if dashboard != scheduler.dashboard:
                scheduler.dashboard = dashboard
                self.store.update(job_id, if_status=OPEN, dashboard=dashboard)

    async def _wait_for_event(self) -> None:
        """Wait until a job ends, a notification arrives, or the polling interval has passed."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._wakeup.wait(), _POLL_SECONDS)
        for task in [task for task in self._running if task.done()]:
            job_id, error = self._running.pop(task), task.exception()
            if isinstance(error, JobStoreError) or (error is not None and is_retryable(error)):
                await self._handle_failure(error)
            elif error is not None:
                _log.warning("job %s: %s", job_id, str(error).splitlines()[:1])
            else:
                self._backoff.record_success()
                # It is another one if the job was resumed meanwhile.
                if self.submissions.get(job_id) is self._schedulers[job_id].submission:
                    del self.submissions[job_id]
                with contextlib.suppress(OSError):
                    records.read_all()  # removes records of clusters of killed steps
            del self._schedulers[job_id]


def _clean_jobs() -> None:
    """Remove ended jobs, if the configuration of this process has a limit for these."""
    try:
        settings = config.jobs()
        if settings.cleans:
            removed = clean_jobs(settings.clean_seconds, settings.clean_keep)
            _log.info("removed %d ended jobs", len(removed))
    except (HyperplaneError, OSError) as error:
        _log.warning("cannot remove ended jobs: %s", error)


async def _run_claimed(claim: Any, scheduler: JobScheduler) -> None:
    try:
        with claim:
            await scheduler.run()
    finally:
        scheduler.send_end_notice()


async def _run_supervisor(
    submissions: Mapping[str, SubmissionEnvironment], sender: NotificationSender
) -> Supervisor | None:
    """Run the supervisor of this user and store to its end; None if another one is running."""
    with supervisor_client.hold_supervisor_lock() as is_only:
        if not is_only:
            return None
        # Steps must not inherit the configuration that a program has set.
        os.environ.pop(supervisor_client.INHERITED_CONFIG, None)
        backoff, supervisor = Backoff(_log.warning), None
        while True:
            try:
                supervisor = supervisor or Supervisor(
                    open_store(), capture_environment(), submissions=submissions, sender=sender
                )
                await _serve_requests(supervisor)
            except (JobStoreError, OSError) as error:
                if not is_retryable(error):
                    raise
                await asyncio.sleep(backoff.record_failure(error))
            else:
                return supervisor


async def _serve_requests(supervisor: Supervisor) -> None:
    linger = max(1.0, float(parse_seconds(config.jobs().linger)))
    while not supervisor.is_outdated and supervisor.has_waiting_jobs():
        # A submission after the last check finds no socket, and starts another supervisor.
        async with supervisor_client.listen(supervisor.receive):
            await supervisor.run(linger)


def _run_until_replaced() -> None:
    """Run the supervisor, until it ends or one of another installed version takes its place."""
    submissions: Mapping[str, SubmissionEnvironment] = {}
    # At the end it waits, while a successor runs the jobs.
    with contextlib.closing(NotificationSender()) as sender:
        while ended := asyncio.run(_run_supervisor(submissions, sender)):
            if not ended.is_outdated:
                return
            _log.warning("another version of hyperplane is installed; its supervisor starts")
            try:
                ended.start_successor()
            except HyperplaneError as error:  # for example, the installation lacks a dependency
                _log.warning("%s; the supervisor of the former version continues", error)
                submissions = ended.submissions
            else:
                return


if __name__ == "__main__":
    # A shell makes processes that it starts in the background ignore SIGINT.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        _run_until_replaced()
    except HyperplaneError as error:
        _log.error("%s", error)
        sys.exit(1)
