"""Workers of a cluster as jobs of Slurm.

An event ``status`` has the states of the jobs whose workers are missing.
"""

from __future__ import annotations

import asyncio
import errno
import getpass
import itertools
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from hyperplane.clusters.remote_nodes.job_script import CONNECTION_FILE, insert_name
from hyperplane.clusters.remote_nodes.job_server import JobConnection, JobServer
from hyperplane.clusters.remote_nodes.worker_group import RemoteWorkerGroup
from hyperplane.platforms.slurm.commands import cancel_jobs
from hyperplane.platforms.slurm.job_state import (
    FAILED,
    OUT_OF_MEMORY,
    RUNNING,
    SlurmJobStatus,
    count_states,
    describe_blocked,
    is_out_of_memory,
)
from hyperplane.platforms.slurm.logs import read_log_tail
from hyperplane.platforms.slurm.queue import query_jobs_async
from hyperplane.platforms.slurm.shared_folder import write_private_files
from hyperplane.platforms.slurm.submit import describe_submit_error, submit_script_async

#: Number of sbatch commands that run at the same time.
_MAX_SUBMISSIONS = 16
#: Seconds between two queries of squeue, and between two attempts to submit a job while Slurm does
#: not answer: the first and the longest interval.
_FIRST_INTERVAL, _LONGEST_INTERVAL = 2.0, 20.0
#: Seconds after which a job that has connected counts as failed without a worker.
_START_SECONDS = 900.0
#: Seconds after the end of a connection until Slurm knows that the job has ended, and until the job
#: is in its final state.
_NOTICE_SECONDS, _COMPLETION_SECONDS = 15.0, 60.0
#: Seconds for which the end waits for submissions, and then until Slurm has no job of the cluster.
_SUBMIT_SECONDS, _END_SECONDS = 20.0, 15.0
_LOG_LINES = 20
#: Seconds before a job is submitted again after a failure; the pause doubles with each.
_RETRY_SECONDS = 30.0
#: Variables of this process that the jobs do not get.
_OWN_VARIABLES = ("HYPERPLANE_LOCAL_CLUSTER", "TMPDIR")


class JobWorker:
    """A worker in a job, which ends with its connection.

    Parameters
    ----------
    connection : JobConnection
        The connection to the program of the job.
    pid : int
        Process ID of the worker on its machine.
    after_end : callable
        Called when the worker has ended before the cluster.
    """

    def __init__(self, connection: JobConnection, pid: int, after_end: Callable[[], None]) -> None:
        self._connection, self.host, self.pid = connection, connection.host, pid
        self._after_end = after_end

    def is_running(self) -> bool:
        """Return whether its program runs and is connected."""
        return not self._connection.ended.is_set()

    def end(self) -> None:
        """Report why it has ended, and cancel its job, which runs if the connection was lost."""
        self._after_end()

    def disconnect(self) -> None:
        """End its program."""
        self._connection.close()


@dataclass(frozen=True)
class _EndedJob:
    """A job whose connection has ended: its worker, and when it ended."""

    name: str
    moment: float


class SlurmWorkerGroup(RemoteWorkerGroup):
    """The workers of a cluster, which are jobs.

    Parameters
    ----------
    report : callable
        Reports an event by its keywords.
    """

    #: Beginning of the names of variables of this process that the jobs do not get.
    own_prefix: ClassVar[str]

    def __init__(self, report: Callable[..., None]) -> None:
        super().__init__(report)
        self._server = JobServer()
        self._submission_slots = asyncio.Semaphore(_MAX_SUBMISSIONS)
        self._submissions: set[asyncio.Task[str]] = set()
        self._numbers = itertools.count(1)
        #: Keys of the last jobs of workers for the server: their names and a number.
        self._keys: dict[str, str] = {}
        #: Ids of the jobs that may be in the queue, and their keys; keys of those not needed.
        self._jobs: dict[str, str] = {}
        self._withdrawn: set[str] = set()
        self._ended_jobs: dict[str, _EndedJob] = {}
        #: Why jobs are not submitted yet, by their keys.
        self._submit_faults: dict[str, str] = {}
        self._is_started = self._is_closing = False
        self._cluster_name = ""
        self._script, self._logs = "", Path()
        self._local_directory: str | None = None
        self._interface_key = ""
        self._environment: dict[str, str] = {}
        self._checks: Any = None

    def _start_server(self, request: dict[str, Any]) -> None:
        """Start the server for the jobs at the address that they see."""
        self._cluster_name, self._is_started = request["name"], True
        self._interface_key = request["interface_key"]
        self._script, self._logs = request["script"], Path(request["logs"])
        self._local_directory = request["local_directory"]
        self._logs.mkdir(parents=True, exist_ok=True)
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if name not in _OWN_VARIABLES and not name.startswith(self.own_prefix)
        }
        if request["user_tmpdir"]:
            self._environment["TMPDIR"] = request["user_tmpdir"]
        text = self._loop.run(self._server.start(request["host"], Path(request["folder"])))
        write_private_files(Path(request["scratch"]), {CONNECTION_FILE: text})

    def _start_checks(self) -> None:
        """Start to check the states of the jobs, after the head has started."""
        self._checks = self._loop.start(self._watch_jobs())

    async def _start_remote_worker(self, request: dict[str, Any]) -> JobWorker:
        name = request["worker"]
        self._keys[name] = key = f"{name}-{next(self._numbers)}"
        connected = self._server.expect(key)
        submission = asyncio.create_task(self._submit(key))
        self._submissions.add(submission)
        submission.add_done_callback(self._finish_submission)
        connection = None
        try:
            # A cancellation does not end sbatch, whose job would then not be known.
            job_id = await asyncio.shield(submission)
            connection = await connected
            configuration = {
                **self._configure(request, connection.host),
                "local_directory": self._local_directory,
            }
            try:
                reply = await asyncio.wait_for(connection.exchange(configuration), _START_SECONDS)
            except TimeoutError as error:
                raise RuntimeError(
                    f"job {job_id} did not start its {self.noun} in {_START_SECONDS:g} s"
                ) from error
            if "pid" not in reply:
                reason = reply.get("fault") or f"it has ended before its {self.noun} has started"
                raise RuntimeError(self._with_log(f"job {job_id}: {reason}", job_id))
            worker = JobWorker(connection, reply["pid"], lambda: self._handle_end(name, job_id))
            if fault := await self._complete_start(worker, reply):
                raise RuntimeError(self._with_log(f"job {job_id}: {fault}", job_id))
        except BaseException:
            self._withdrawn.add(key)
            self._submit_faults.pop(key, None)
            self._server.forget(key)
            if connection is not None:
                connection.close()
            if not self._is_closing:  # otherwise the end cancels all jobs
                await self._cancel([job for job, its in self._jobs.items() if its == key])
            raise
        return worker

    async def _submit(self, key: str) -> str:
        """Submit the job of a key, as soon as Slurm answers."""
        interval = _FIRST_INTERVAL
        script = insert_name(self._script, key)
        while True:
            async with self._submission_slots:
                if self._is_closing or key in self._withdrawn:
                    self._submit_faults.pop(key, None)
                    raise RuntimeError("it was closed before this job was submitted")
                try:
                    job_id = await submit_script_async(script, environment=self._environment)
                except OSError as error:
                    if error.errno != errno.EAGAIN:
                        raise RuntimeError(describe_submit_error(error)) from error
                    self._submit_faults[key] = describe_submit_error(error)
                else:
                    self._submit_faults.pop(key, None)
                    self._jobs[job_id] = key
                    if key in self._withdrawn:
                        await self._cancel([job_id])
                    return job_id
            await asyncio.sleep(interval)
            interval = min(interval * 1.5, _LONGEST_INTERVAL)

    def _retry_pause(self) -> float:
        return _RETRY_SECONDS

    def _finish_submission(self, submission: asyncio.Task[str]) -> None:
        self._submissions.discard(submission)
        if not submission.cancelled():
            submission.exception()  # of a withdrawn job it is not awaited

    async def _cancel(self, job_ids: list[str]) -> None:
        """Cancel jobs; a warning names those for which Slurm has refused it."""
        if not job_ids:
            return
        try:
            result = await cancel_jobs(job_ids, self._environment)
            reason = result.message if result.exit_code else ""
        except OSError as error:
            reason = str(error)
        # For a job that has ended, too, scancel may have an exit code.
        if reason and "Invalid job id" not in reason and "already" not in reason:
            jobs = " ".join(job_ids)
            message = f"Slurm did not cancel jobs, run: scancel {jobs} ({reason})"
            self._report(event="warning", message=message)
            return  # the end tries again
        for job_id in job_ids:
            self._jobs.pop(job_id, None)

    def _handle_end(self, name: str, job_id: str) -> None:
        async def note() -> None:
            self._ended_jobs[job_id] = _EndedJob(name, time.monotonic())

        self._loop.start(note())

    async def _watch_jobs(self) -> None:
        """Report why workers are missing, and end the wait for those that never start."""
        interval = _FIRST_INTERVAL
        while True:
            await asyncio.sleep(_FIRST_INTERVAL if self._ended_jobs else interval)
            try:
                is_waiting = await self._check_jobs()
            except Exception as error:  # noqa: BLE001 - the next round may succeed
                self._report(event="warning", message=f"the jobs were not checked: {error}")
                is_waiting = True
            interval = min(interval * 1.5, _LONGEST_INTERVAL) if is_waiting else _FIRST_INTERVAL

    async def _check_jobs(self) -> bool:
        """Check all jobs without a worker; return whether there are any that may start."""
        waiting = {job: key for job, key in self._jobs.items() if self._server.is_expected(key)}
        ended = dict(self._ended_jobs)
        if not waiting and not ended:
            self._report_status("")
            return False
        statuses = await query_jobs_async([*waiting, *ended], self._environment)
        if statuses is None:
            self._report_status("squeue does not answer; run it in a terminal to see the reason")
            return True
        for job_id, key in waiting.items():
            if fault := self._find_fault(job_id, statuses.get(job_id)):
                self._server.fail(key, RuntimeError(fault))
        await self._report_ended(ended, statuses)
        states = {job: statuses[job] for job in waiting if job in statuses}
        text = _describe_waiting(states, len(waiting), self._interface_key) if waiting else ""
        self._report_status(text)
        return bool(waiting)

    def _report_status(self, text: str) -> None:
        faults = [*self._submit_faults.values()][:1]
        self._report(event="status", text="; ".join(filter(None, [*faults, text])))

    async def _report_ended(
        self, ended: Mapping[str, _EndedJob], statuses: Mapping[str, SlurmJobStatus]
    ) -> None:
        """Report why jobs have ended, and cancel them, so that Slurm does not start them again."""
        known = []
        for job_id, job in ended.items():
            status, elapsed = statuses.get(job_id), time.monotonic() - job.moment
            # Slurm notices the end of a job later than the end of its connection is seen here.
            if status is not None and status.state == RUNNING and elapsed < _NOTICE_SECONDS:
                continue
            is_ending = status is not None and status.is_leaving_queue and not status.is_ended
            if is_ending and elapsed < _COMPLETION_SECONDS:
                continue
            known.append(job_id)
            del self._ended_jobs[job_id]
            is_replaced = job.name in {*self._starting, *self._workers, *self._due}
            message = f"job {job_id} ({self.noun} {job.name}) {self._explain_end(job_id, status)}"
            message += "; it is submitted again" if is_replaced else ""
            if status is not None and status.state == FAILED:
                message = self._with_log(message, job_id)
            self._report(event="warning", message=message)
        await self._cancel(known)

    def _explain_end(self, job_id: str, status: SlurmJobStatus | None) -> str:
        """Return why a job has ended, as the predicate of a sentence."""
        if status is None:
            return "has ended"
        if status.state == RUNNING:
            return "does not answer any more, and was cancelled"
        if is_out_of_memory(status.state, read_log_tail(self._logs, job_id, _LOG_LINES)):
            advice = "raise ram_gb_per_proc, or memory_margin_gb of the engine"
            return f"ended with the state {OUT_OF_MEMORY}: {advice}"
        return status.end_reason

    def _find_fault(self, job_id: str, status: SlurmJobStatus | None) -> str:
        """Return why a job whose program has not connected never will; "" if it may."""
        if status is None or status.is_ended:
            state = "it is not in the queue" if status is None else status
            text = f"job {job_id} ended before its {self.noun} connected: {state}"
            return self._with_log(text, job_id)
        return describe_blocked(job_id, status)

    def _with_log(self, text: str, job_id: str) -> str:
        tail = read_log_tail(self._logs, job_id, _LOG_LINES)
        return f"{text}; last lines of its output:\n{tail}" if tail else text

    def _is_starting(self) -> bool:
        # Jobs that replace others may wait for days, which does not prevent the idle timeout.
        return any(
            self._starts[name] == 1 or not self._server.is_expected(self._keys.get(name, ""))
            for name in self._starting
        )

    def end(self) -> None:
        """End all jobs, and all processes of this machine."""
        self._is_closing = True
        super().end()

    async def _end_workers(self) -> None:
        if self._checks is not None:
            self._checks.cancel()
        await self._server.close()
        for node in self._workers.values():
            if isinstance(node, JobWorker):
                node.disconnect()
        if self._submissions:
            await asyncio.wait(self._submissions, timeout=_SUBMIT_SECONDS)
        # By their name, too: sbatch may have submitted a job and not have answered.
        options = [f"--name={self._cluster_name}", f"--user={getpass.getuser()}"]
        left = list(self._jobs)
        deadline = time.monotonic() + _END_SECONDS
        reason = ""
        while self._is_started:
            try:
                async with asyncio.timeout(max(1.0, deadline - time.monotonic())):
                    result = await cancel_jobs([*options, *left], self._environment)
                    statuses = await query_jobs_async(left, self._environment)
                reason = result.message if result.exit_code else "squeue does not answer"
            except OSError as error:
                statuses, reason = None, str(error) or "Slurm does not answer"
            if statuses is not None:
                left = [job for job in left if job in statuses]
                left = [job for job in left if not statuses[job].is_leaving_queue]
            if not left:
                return
            if time.monotonic() > deadline:
                message = f"Slurm did not end all jobs, run: scancel {' '.join(left)} ({reason})"
                self._report(event="warning", message=message)
                return
            await asyncio.sleep(0.2)


def _describe_waiting(
    statuses: Mapping[str, SlurmJobStatus], total: int, interface_key: str
) -> str:
    text = f"squeue reports: {count_states(statuses, total)}"
    if any(status.state == RUNNING for status in statuses.values()):
        text += (
            ". If a running job does not connect, the nodes cannot reach this machine "
            f"({interface_key}) or start slowly"
        )
    return text
