"""Subclasses of dask-jobqueue's classes that run a plan and monitor its jobs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, cast

from distributed.core import Status
from distributed.scheduler import Scheduler
from tornado.ioloop import PeriodicCallback

from hyperplane.clusters.dask.guarded_cluster import GuardedCluster, loopback_link
from hyperplane.clusters.dask.remote_process import node_name
from hyperplane.clusters.dask.slurm.import_jobqueue import SLURMCluster, SLURMJob
from hyperplane.core.errors import StartFailed
from hyperplane.platforms.slurm.commands import cancel_jobs
from hyperplane.platforms.slurm.job_state import SlurmJobStatus, describe_blocked
from hyperplane.platforms.slurm.queue import query_jobs_async
from hyperplane.platforms.slurm.submit import describe_submit_error, submit_script_async

#: Seconds between checks of jobs with missing workers.
POLL_SECONDS = 15.0
#: Number of Slurm commands that run at the same time for one cluster.
MAX_CONCURRENT_COMMANDS = 16
#: Seconds that a worker may take to transfer its results before its job is cancelled.
RETIRE_TIMEOUT_SECONDS = 60.0
#: Seconds that closing waits for the jobs to leave the queue; at exit Dask allows ten in all.
CLOSE_TIMEOUT_SECONDS = 8.0

logger = logging.getLogger(__name__)


class PlannedJob(SLURMJob):
    """Job of dask-jobqueue that runs the script of a plan.

    Parameters
    ----------
    script : callable
        Returns the script for a scheduler address and a worker name. It replaces dask-jobqueue's
        script, which rounds memory, inserts lines from settings without quoting, and takes missing
        values from dask-jobqueue's configuration.
    command_slots : asyncio.Semaphore
        Held while a Slurm command runs.
    **kwargs
        Arguments of SLURMJob.
    """

    def __init__(
        self,
        scheduler: str | None = None,
        name: str | None = None,
        *,
        script: Callable[[str | None, str | None], str],
        command_slots: asyncio.Semaphore,
        **kwargs: Any,
    ) -> None:
        super().__init__(scheduler, name, **kwargs)
        self._script = script
        self._command_slots = command_slots
        self._is_closing = False

    def job_script(self) -> str:
        """Return the script for sbatch."""
        return self._script(self.scheduler, self.name)

    async def _submit_job(self, script_filename: str) -> str:
        del script_filename  # a copy that dask-jobqueue has made
        async with self._command_slots:
            if self._is_closing:
                raise StartFailed("slurm", "the cluster was closed before this job was submitted")
            try:
                return await submit_script_async(self.job_script())
            except OSError as error:
                raise StartFailed("slurm", describe_submit_error(error)) from error

    async def close(self) -> None:
        """Cancel the job; if the cluster runs, move its results to other workers first."""
        cluster = self._cluster() if hasattr(self, "_cluster") else None
        if cluster is not None and cluster.status == Status.running:
            with suppress(OSError, asyncio.TimeoutError):
                await asyncio.wait_for(cluster.retire(self.name), RETIRE_TIMEOUT_SECONDS)
        self._is_closing = True
        async with self.lock:  # after Ctrl-C its submission may still run, without a job id
            await self._cancel()
        self.status = Status.closed
        self._event_finished.set()

    async def _cancel(self) -> None:
        if self.job_id is not None and self.status != Status.closed:
            async with self._command_slots:
                with suppress(OSError):  # _wait_until_gone reports jobs that remain
                    await cancel_jobs([self.job_id])


class _WatchedCluster(SLURMCluster):
    """SLURMCluster that monitors its jobs, and reports and drops those that ended."""

    def __init__(self, *, first_jobs: int, explain: Callable[..., str], **kwargs: Any) -> None:
        self._first_jobs = first_jobs
        self._explain = explain
        self._has_started = False
        self._warned: set[str] = set()
        job_options: Any = {
            "job_cls": PlannedJob,
            "command_slots": asyncio.Semaphore(MAX_CONCURRENT_COMMANDS),
        }
        super().__init__(**job_options, **kwargs)
        self._has_started = True

    def _get_worker_security(self, security: Any) -> None:
        """Return nothing: the key pair is already in files, and must not be written elsewhere."""

    @property
    def dashboard_link(self) -> str:
        """Link to the dashboard, which listens on loopback only."""
        return loopback_link(super().dashboard_link, self.scheduler_address)

    async def _start(self) -> None:
        await super()._start()
        if self.status == Status.running and not self._has_started:
            # Without `scale`, so that the start raises the error of a refused job.
            for _ in range(self._first_jobs):
                self.worker_spec.update(self.new_worker_spec())
            watch = PeriodicCallback(self._check_jobs, POLL_SECONDS * 1000)
            self.periodic_callbacks["jobs"] = watch
            watch.start()

    async def _correct_state_internal(self) -> None:
        job_ids = set(self.jobs().values())
        try:
            await super()._correct_state_internal()
        except StartFailed as error:
            if not self._has_started:
                raise
            logger.warning("cluster %s has fewer workers than requested: %s", self.name, error)
        if self.status == Status.closing:
            # Before the status is closed: after that close() does not wait any more.
            await self._wait_until_gone(job_ids)

    def jobs(self) -> dict[str, str]:
        """Return the ids of submitted jobs by the names of their workers."""
        return {name: job.job_id for name, job in self.workers.items() if job.job_id is not None}

    def processes(self, name: str) -> set[str]:
        """Return the names of the worker processes of a job."""
        group = self.new_spec.get("group", [""])
        return {f"{name}{suffix}" for suffix in group}

    async def retire(self, name: str) -> None:
        """Move the results of a job's workers to other workers and close them."""
        await self._local_scheduler().retire_workers(
            names=sorted(self.processes(name)), close_workers=True, remove=True
        )

    def _local_scheduler(self) -> Scheduler:
        """Return the scheduler, which runs in this process."""
        return cast(Scheduler, self.scheduler)

    def adapt(self, *args: Any, **kwargs: Any) -> Any:
        """Scale with the work; a job is ended only when all its worker processes can be closed."""
        grouped = bool(self.new_spec.get("group"))
        kwargs.setdefault("worker_key", partial(node_name, grouped=grouped))
        return super().adapt(*args, **kwargs)

    async def _incomplete_jobs(self) -> dict[str, PlannedJob]:
        """Return the jobs with missing worker processes, by the names of their workers."""
        connected = {worker.name for worker in self._local_scheduler().workers.values()}
        return {
            name: job for name, job in self.workers.items() if not self.processes(name) <= connected
        }

    def incomplete_jobs(self) -> set[str]:
        """Return the ids of the jobs with missing worker processes."""
        return {
            job.job_id
            for job in self.sync(self._incomplete_jobs).values()
            if job.job_id is not None
        }

    async def _check_jobs(self) -> None:
        """Log why jobs with missing workers wait or have ended, and drop the ended ones."""
        missing = await self._incomplete_jobs()
        job_ids = [job.job_id for job in missing.values() if job.job_id is not None]
        statuses = await query_jobs_async(job_ids)
        if statuses is None or self.status != Status.running:
            return
        async with self._lock:
            for name, job in missing.items():
                status = statuses.get(job.job_id or "")
                if job.job_id is None or status is None or status.is_ended:
                    self._drop_ended_job(name, job, status)
                elif job.job_id not in self._warned and (
                    blocked := describe_blocked(job.job_id, status)
                ):
                    self._warned.add(job.job_id)
                    logger.warning("%s", blocked)

    def _drop_ended_job(self, name: str, job: PlannedJob, status: SlurmJobStatus | None) -> None:
        """Remove an ended job from the specification, so that scale() and adapt() replace it."""
        if self.workers.get(name) is not job:
            return
        del self.workers[name]
        self.worker_spec.pop(name, None)
        job.status = Status.closed
        if job.job_id is not None:
            logger.warning("%s", self._explain(job.job_id, name, status))

    async def _wait_until_gone(self, job_ids: set[str]) -> None:
        """Wait until jobs have left the queue, and warn about those that do not."""
        deadline = time.monotonic() + CLOSE_TIMEOUT_SECONDS
        while job_ids:
            statuses = await query_jobs_async(sorted(job_ids))
            if statuses is not None and all(status.is_ended for status in statuses.values()):
                return
            if statuses is None or time.monotonic() > deadline:
                # Jobs in COMPLETING are left out: an epilogue may take long.
                running = {
                    job_id
                    for job_id, status in (statuses or {}).items()
                    if not status.is_leaving_queue
                }
                if remaining := " ".join(sorted(job_ids if statuses is None else running)):
                    logger.warning(
                        "Slurm did not confirm that jobs ended; run: scancel %s", remaining
                    )
                return
            await asyncio.sleep(0.2)


class GuardedSLURMCluster(GuardedCluster, _WatchedCluster):
    """SLURMCluster with idle timeout, busy-worker guard and complete cleanup."""

    start_of_worker = ("job", "submitted")
    #: ``sbatch`` may wait for the controller, and a job without a number cannot be cancelled.
    end_workers_seconds = 300.0

    async def end_workers(self) -> None:
        """Cancel the jobs, and wait until they have left the queue."""
        jobs = list(self._created)
        await super().end_workers()
        await self._wait_until_gone({job.job_id for job in jobs if job.job_id is not None})
