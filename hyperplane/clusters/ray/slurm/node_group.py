"""The head of a Ray cluster on this machine, and its worker nodes as jobs of Slurm.

An event ``status`` has the states of the jobs whose worker nodes are missing.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hyperplane.clusters.ray.remote_node_group import RemoteRayNodeGroup
from hyperplane.clusters.ray.slurm.job_server import JobConnection, JobServer
from hyperplane.clusters.ray.slurm.script import CONNECTION_FILE
from hyperplane.platforms.slurm.commands import cancel_jobs
from hyperplane.platforms.slurm.job_state import (
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

#: Number of Slurm commands that run at the same time.
_MAX_COMMANDS = 16
#: Seconds between two queries of squeue: the first and the longest interval.
_FIRST_INTERVAL, _LONGEST_INTERVAL = 2.0, 20.0
#: Seconds after which a job that has connected counts as failed without a worker node.
_START_SECONDS = 900.0
#: Seconds to wait for the final state of a job that is ending.
_COMPLETION_SECONDS = 60.0
#: Seconds for which the end waits until Slurm has no job of the cluster.
_END_SECONDS = 8.0
_LOG_LINES = 20
#: Variables of this process that the jobs do not get, and the beginning of others.
_OWN_VARIABLES, _RAY_PREFIX = ("HYPERPLANE_LOCAL_CLUSTER", "TMPDIR"), "RAY_"


class JobWorkerNode:
    """A worker node in a job, which ends with its connection.

    Parameters
    ----------
    connection : JobConnection
        The connection to the program of the job.
    pid : int
        Process ID of the raylet on its machine.
    after_end : callable
        Called when the worker node has ended before the cluster.
    """

    def __init__(self, connection: JobConnection, pid: int, after_end: Callable[[], None]) -> None:
        self._connection, self.host, self.pid = connection, connection.host, pid
        self._after_end = after_end

    def is_running(self) -> bool:
        """Return whether its program runs and is connected."""
        return not self._connection.ended.is_set()

    def end(self) -> None:
        """Cancel its job, which may still run if the connection was lost."""
        self._after_end()

    def disconnect(self) -> None:
        """End its program."""
        self._connection.close()


class SlurmRayNodeGroup(RemoteRayNodeGroup):
    """The nodes of a cluster; the worker nodes are jobs.

    Parameters
    ----------
    report : callable
        Reports an event by its keywords.
    """

    def __init__(self, report: Callable[..., None]) -> None:
        super().__init__(report)
        self._server = JobServer()
        self._command_slots = asyncio.Semaphore(_MAX_COMMANDS)
        #: Ids of the jobs by the names of their worker nodes, and of all jobs until they end.
        self._jobs: dict[str, str] = {}
        self._submitted: set[str] = set()
        self._submissions: set[asyncio.Task[str]] = set()
        self._logs, self._environment = Path(), dict[str, str]()
        self._checks: Any = None

    def _start_head(self, request: dict[str, Any]) -> None:
        """Start the server for the jobs, and the head at the address that they see."""
        self._logs = Path(request["logs"])
        self._logs.mkdir(parents=True, exist_ok=True)
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if name not in _OWN_VARIABLES and not name.startswith(_RAY_PREFIX)
        }
        if request["user_tmpdir"]:
            self._environment["TMPDIR"] = request["user_tmpdir"]
        text = self._loop.run(self._server.start(request["host"], Path(request["folder"])))
        write_private_files(Path(request["scratch"]), {CONNECTION_FILE: text})
        self._start_encrypted_head(request, request["host"], request["tls"])
        self._checks = self._loop.start(self._check_jobs())

    async def _start_remote_worker(self, request: dict[str, Any]) -> JobWorkerNode:
        name = request["worker"]
        connected = self._server.expect(name)
        submission = asyncio.create_task(self._submit(name, request["script"]))
        self._submissions.add(submission)
        submission.add_done_callback(self._submissions.discard)
        try:
            # After a cancellation, too, the job is in self._submitted when sbatch has ended.
            job_id = await asyncio.shield(submission)
            connection = await connected
            configuration = self._configure(request, connection.host)
            reply = await asyncio.wait_for(connection.exchange(configuration), _START_SECONDS)
            if "pid" not in reply:
                connection.close()
                reason = reply.get("fault") or "it has ended before its worker node has started"
                raise RuntimeError(self._with_log(f"job {job_id}: {reason}", job_id))
        except BaseException:
            self._server.forget(name)
            await self._cancel(self._jobs.pop(name, ""))
            raise
        return JobWorkerNode(connection, reply["pid"], lambda: self._replace_job(name, job_id))

    async def _submit(self, name: str, script: str) -> str:
        async with self._command_slots:
            try:
                job_id = await submit_script_async(script, environment=self._environment)
            except OSError as error:
                raise RuntimeError(describe_submit_error(error)) from error
        self._jobs[name] = job_id
        self._submitted.add(job_id)
        return job_id

    async def _cancel(self, job_id: str) -> None:
        if job_id:
            async with self._command_slots:
                try:
                    await cancel_jobs([job_id], self._environment)
                except OSError as error:
                    message = f"job {job_id} was not cancelled, run scancel {job_id}: {error}"
                    self._report(event="warning", message=message)

    def _replace_job(self, name: str, job_id: str) -> None:
        """Report why a job has ended, and cancel it, so that Slurm does not start it again."""
        self._jobs.pop(name, None)
        self._loop.start(self._explain_end(name, job_id))

    async def _explain_end(self, name: str, job_id: str) -> None:
        status = await self._find_last_status(job_id)
        await self._cancel(job_id)
        reason = "has ended"
        if status is not None and status.state == RUNNING:
            reason = "does not answer any more"
        elif status is not None and is_out_of_memory(
            status.state, read_log_tail(self._logs, job_id, _LOG_LINES)
        ):
            advice = "raise ram_gb_per_proc, or memory_margin_gb of the engine"
            reason = f"ended with the state {OUT_OF_MEMORY}: {advice}"
        elif status is not None:
            reason = status.end_reason
        message = f"job {job_id} (worker node {name}) {reason}; it is submitted again"
        self._report(event="warning", message=message)

    async def _find_last_status(self, job_id: str) -> SlurmJobStatus | None:
        """Return the status of a job without connection, which may be ending."""
        deadline = time.monotonic() + _COMPLETION_SECONDS
        while True:
            statuses = await query_jobs_async([job_id], self._environment) or {}
            status = statuses.get(job_id)
            is_ending = status is not None and status.is_leaving_queue and not status.is_ended
            if not is_ending or time.monotonic() > deadline:
                return status
            await asyncio.sleep(_FIRST_INTERVAL)

    async def _check_jobs(self) -> None:
        """Report why worker nodes are missing, and end the wait for those that never start."""
        interval = _FIRST_INTERVAL
        while True:
            await asyncio.sleep(interval)
            waiting = {
                name: job for name, job in self._jobs.items() if self._server.is_expected(name)
            }
            if not waiting:
                interval = _FIRST_INTERVAL
                continue
            interval = min(interval * 1.5, _LONGEST_INTERVAL)
            statuses = await query_jobs_async(waiting.values(), self._environment)
            if statuses is None:
                text = "squeue does not answer; run it in a terminal to see the reason"
                self._report(event="status", text=text)
                continue
            for name, job_id in waiting.items():
                if fault := self._find_fault(job_id, statuses.get(job_id)):
                    self._server.fail(name, RuntimeError(fault))
            self._report(event="status", text=_describe_waiting(statuses, len(waiting)))

    def _find_fault(self, job_id: str, status: SlurmJobStatus | None) -> str:
        """Return why a job whose program has not connected never will; "" if it may."""
        if status is None or status.is_ended:
            state = "it is not in the queue" if status is None else status
            text = f"job {job_id} ended before its worker node connected: {state}"
            return self._with_log(text, job_id)
        return describe_blocked(job_id, status)

    def _with_log(self, text: str, job_id: str) -> str:
        tail = read_log_tail(self._logs, job_id, _LOG_LINES)
        return f"{text}; last lines of its output:\n{tail}" if tail else text

    def _is_starting(self) -> bool:
        # Jobs may wait for days, which does not prevent the idle timeout.
        return any(not self._server.is_expected(name) for name in self._starting)

    async def _end_workers(self) -> None:
        if self._checks is not None:
            self._checks.cancel()
        await self._server.close()
        for node in self._workers.values():
            if isinstance(node, JobWorkerNode):
                node.disconnect()
        await asyncio.gather(*self._submissions, return_exceptions=True)
        deadline = time.monotonic() + _END_SECONDS
        if self._submitted:
            await cancel_jobs(sorted(self._submitted), self._environment)
        while self._submitted and time.monotonic() < deadline:
            statuses = await query_jobs_async(sorted(self._submitted), self._environment)
            if statuses is not None and all(each.is_leaving_queue for each in statuses.values()):
                return
            await asyncio.sleep(0.2)


def _describe_waiting(statuses: dict[str, SlurmJobStatus], total: int) -> str:
    text = f"squeue reports: {count_states(statuses, total)}"
    if any(status.state == RUNNING for status in statuses.values()):
        text += (
            ". If a running job does not connect, the nodes cannot reach this machine "
            "(hyperplane.engines.slurm.interface) or start slowly"
        )
    return text
