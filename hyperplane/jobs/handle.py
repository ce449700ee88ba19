"""Handle of a submitted job."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hyperplane import config
from hyperplane.core.argument_checks import find_flag_faults
from hyperplane.core.errors import (
    Fault,
    JobCancelled,
    JobError,
    JobFailed,
    JobTimeout,
    check,
)  # fmt: skip
from hyperplane.core.public_calls import check_call
from hyperplane.core.text_tables import as_text
from hyperplane.core.units import whole_number
from hyperplane.core.wait_display import INTERVAL, WaitDisplay, show_wait
from hyperplane.jobs import calls, job_control
from hyperplane.jobs.artifacts import ArtifactList, list_artifacts, read_artifacts
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.execution.step_log import read_last_lines
from hyperplane.jobs.job_html import render_job
from hyperplane.jobs.job_names import find_job
from hyperplane.jobs.job_progress import step_progress
from hyperplane.jobs.job_rows import list_rows
from hyperplane.jobs.job_waiting import describe_wait, parse_timeout
from hyperplane.jobs.live_output import JobState, show_job
from hyperplane.jobs.store import job_records
from hyperplane.jobs.store.job_records import CANCELLED, DONE, IN_PROGRESS, TIMED_OUT, Attempt, Job
from hyperplane.jobs.store.jobs_home import open_store

#: Seconds between polls of a job.
_POLL_SECONDS = 0.1


@check_call
class JobHandle:
    """Handle of a submitted job; the job is independent of this object.

    Parameters
    ----------
    job_id : str or Submitted
        The id or a unique prefix of it, ``"nightly #12"`` for a run of a pipeline, the name of a
        pipeline for its newest run, ``"latest"``, or the result of the submission.

    Raises
    ------
    JobError
        If there is no such job.
    """

    def __init__(self, job_id: str | job_control.Submitted) -> None:
        self._store = open_store()
        self.id = find_job(self._store, job_control.to_job_id(job_id)).id

    @property
    def job(self) -> Job:
        """Current state of the job in the store."""
        return self._store.get(self.id)

    @property
    def status(self) -> str:
        """One of the documented statuses, such as ``"in progress"``."""
        return self.job.status

    @property
    def attempts(self) -> list[Attempt]:
        """All attempts at the steps of the job."""
        return self._store.attempts(self.id)

    @check_call
    def wait(self, timeout: float | str | None = None, *, progress: bool = True) -> str:
        """Wait until the job has ended, and return its status.

        Parameters
        ----------
        timeout : float or str, optional
            Seconds, or text such as ``"10 min"``; the job continues after a timeout.
        progress : bool
            Whether to show what the job does while this call waits, in a notebook or on standard
            error; it appears after ``hyperplane.progress.delay``.

        Returns
        -------
        str
            The status of the job.

        Raises
        ------
        RequestError
            If ``timeout`` is not a duration, or ``progress`` is neither True nor False.
        TimeoutError
            If the job has not ended in time.
        """
        check(find_flag_faults(progress=progress))
        limit = parse_timeout(timeout)
        job_control.ensure_supervisor(self._store)
        job = self.job
        if job.processed:
            return job.status
        settings = config.progress()
        delay = settings.delay_seconds if progress else None
        with show_wait(describe_wait(job, ()), delay, settings.log_lines) as display:
            status = self._wait(limit, display)
            if display is not None:
                display.outcome = status
        return status

    def _wait(self, limit: float | None, display: WaitDisplay | None) -> str:
        """Wait until the job has ended, and return its status; update a display meanwhile."""
        began = checked = time.monotonic()
        shown = 0.0
        while not (job := self.job).processed:
            now = time.monotonic()
            if display is not None:
                # Of a timeout or Ctrl-C, which are not about the job.
                display.error_outcome = f"still {job.status}"
            if limit is not None and now > began + limit:
                raise TimeoutError(f"job {self.id} is {job.status} after {limit:g} s; it continues")
            if now - checked > 5:
                job_control.ensure_supervisor(self._store)
                checked = now
            if display is not None and now - shown > INTERVAL:
                display.status = describe_wait(job, step_progress(job, self.attempts, time.time()))
                # Of many chunks, reading the attempts takes long.
                shown = now + 4 * (time.monotonic() - now)
            time.sleep(_POLL_SECONDS)
        return job.status

    @check_call
    def result(self, timeout: float | str | None = None, *, progress: bool = True) -> Any:
        """Wait until the job is done, and return its result.

        Parameters
        ----------
        timeout : float or str, optional
            Seconds, or text such as ``"10 min"``; the job continues after a timeout.
        progress : bool
            As for :meth:`wait`.

        Returns
        -------
        object
            The return value of the function, for a job made from one; else the output that a step
            has set with ``set_current_job_output``, or None.

        Raises
        ------
        JobFailed, JobCancelled, JobTimeout
            If the job did not succeed; the message has the end of the log.
        JobError
            If the return value of the function cannot be read.
        RequestError
            If ``timeout`` is not a duration.
        TimeoutError
            If the job has not ended in time.
        """
        self.wait(timeout, progress=progress)
        job = self.job
        if job.status == DONE:
            return calls.load_result(job) if calls.is_function_job(job) else job.output
        errors: dict[str, type[JobError]] = {CANCELLED: JobCancelled, TIMED_OUT: JobTimeout}
        error = errors.get(job.status, JobFailed)
        log_tail = self.logs(lines=20)
        raise error(self.id, f"{job.status}: {job.reason}" + (f"\n{log_tail}" if log_tail else ""))

    @check_call
    def cancel(self) -> None:
        """Cancel the job and end all processes of its steps; an ended job is not changed."""
        job_control.cancel(self.id)

    @check_call
    def resume(self) -> JobHandle:
        """Resume the job after it has ended; finished steps are not repeated.

        Returns
        -------
        JobHandle
            This object.

        Raises
        ------
        JobError
            If the job belongs to another machine, is done or running, or its definition is
            damaged.
        """
        job_control.resume(self.id)
        return self

    @check_call
    def logs(self, step: str | None = None, *, lines: int | None = None) -> str:
        """Return the log of the last attempt at a step.

        Parameters
        ----------
        step : str, optional
            Name of the step; by default the step that failed last, else one that is running, else
            the one that ended last. Among the chunks of a step the same rule applies.
        lines : int, optional
            Number of lines at the end; all by default.

        Returns
        -------
        str
            The lines, without the values of secrets; empty if no step has started.

        Raises
        ------
        JobError
            If there is no such step, or its log is missing.
        RequestError
            If ``step`` is not text, or ``lines`` is not a number of lines.
        """
        faults = []
        number = whole_number(lines)
        if lines is not None and (number is None or number < 0):
            faults.append(Fault("lines", repr(lines)[:80], "a whole number, at least 0"))
        given_step: Any = step
        if not isinstance(given_step, str | None):
            faults.append(Fault("step", repr(given_step)[:80], "the name of a step"))
        check(faults)
        attempts = [
            attempt for attempt in self.attempts if attempt.log and step in (None, attempt.step)
        ]
        if step is not None and not attempts:
            raise JobError(self.id, self._describe_missing_log(step))
        if not attempts:
            return ""
        log = Path(self.job.folder, _most_relevant(attempts).log)
        try:
            return read_last_lines(log, number)
        except OSError as error:
            message = f"its log {log} cannot be read ({error.strerror})"
            raise JobError(self.id, f"{message}; it ran on {self.job.machine}") from error

    def _describe_missing_log(self, step: str) -> str:
        names = job_records.name_steps(self.job, self.attempts)
        if step in names:
            return f"step {step!r} has no log yet, as it has not started"
        known = ", ".join(map(repr, names)) or "unknown: its definition is damaged"
        return f"{self.job.run_name} has no step {step!r}; its steps are {known}"

    @check_call
    def artifacts(self, step: str | None = None) -> ArtifactList:
        """Return what the steps of the job have saved.

        Parameters
        ----------
        step : str, optional
            Only artifacts of this step.

        Returns
        -------
        list of Artifact
            As for :func:`~hyperplane.jobs.list_artifacts`.

        Raises
        ------
        RequestError
            If the job has no such step.
        """
        return list_artifacts(self.id, step)

    @check_call
    def as_rows(self) -> list[tuple[str, str]]:
        """Return the job and its steps as rows of a table.

        Returns
        -------
        list of (str, str)
            Labels, such as ``"status"`` or the name of a step, and their texts. Of a job whose
            definition is damaged, the steps that have begun.
        """
        return list_rows(self.job, self.attempts)

    def __str__(self) -> str:
        return as_text(self.as_rows())

    __repr__ = __str__

    def _read_state(self) -> JobState:
        job, attempts = self.job, self.attempts
        markup = render_job(job, attempts, artifacts=read_artifacts(self._store, job))
        return JobState(as_text(list_rows(job, attempts)), markup, not job.processed)

    def _repr_html_(self) -> str:
        return self._read_state().markup

    def _ipython_display_(self) -> None:
        """Show the job as the last value of a cell, where it is updated until the job ends."""
        show_job(self._read_state)


def _most_relevant(attempts: Iterable[Attempt]) -> Attempt:
    """Return the last attempt at a step or chunk, a failed one if there is any."""
    last_attempts = {
        (attempt.step, attempt.chunk): attempt
        for attempt in sorted(attempts, key=lambda attempt: attempt.number)
    }.values()
    failed = [attempt for attempt in last_attempts if attempt.status not in (DONE, IN_PROGRESS)]
    return max(
        failed or last_attempts, key=lambda attempt: (attempt.ended or math.inf, attempt.started)
    )


@check_call(outcome="nothing was submitted")
def submit(
    pipeline: str | os.PathLike[str] | Pipeline,
    *,
    name: str | None = None,
    job_type: str | None = None,
    timeout: float | str | None = None,
    active_timeout: float | str | None = None,
    max_retries: int | None = None,
    parameters: Mapping[str, Any] | None = None,
    runner: str = "local",
    runner_options: Mapping[str, Any] | None = None,
) -> JobHandle:
    r"""Submit a pipeline job, which continues when this session ends.

    Parameters
    ----------
    pipeline : path or Pipeline
        A pipeline file, a single script or notebook, or a pipeline built in Python.
    name : str, optional
        Up to 63 letters, digits and ``. _ -``; generated by default.
    job_type : str, optional
        A label of the job.
    timeout : float or str, optional
        Seconds, or text such as ``"2 hours"``, from submission until the job must have ended; -1
        for no limit.
    active_timeout : float or str, optional
        Seconds, or text such as ``"2 hours"``, from the start of the job until it must have ended;
        -1 for no limit. A job starts when its supervisor begins to run it.
    max_retries : int, optional
        Number of retries after a failure that may be transient; finished steps are not repeated.
    parameters : mapping, optional
        Names and values; each step finds them in its environment, notebooks also in a cell.
    runner : str
        Name of the runner, which starts the steps: ``"local"`` starts processes of this machine,
        ``"slurm"`` batch jobs, ``"kubernetes"`` pods, ``"aws-batch"`` jobs of AWS Batch,
        ``"vertex"`` custom jobs of Vertex AI, ``"cloud-run"`` jobs of Cloud Run, ``"glue"`` jobs of
        AWS Glue, ``"emr"`` steps of Amazon EMR, ``"emr-serverless"`` runs of EMR Serverless. The
        error for an unknown name lists all runners.
    runner_options : mapping, optional
        For Kubernetes: settings of the engine ``kubernetes``, such as ``image`` and ``namespace``,
        which replace the configured ones; and ``root``, the folder of the image that has the
        pipeline's files. Without ``root``, the file of each step is copied into its pod. For AWS
        Batch: settings of ``hyperplane.runners.aws_batch``, such as ``queue``; for Vertex AI of
        ``hyperplane.runners.vertex``, such as ``region``, for Cloud Run of
        ``hyperplane.runners.cloud_run``, for AWS Glue of ``hyperplane.runners.glue``, for
        Amazon EMR of ``hyperplane.runners.emr``, and for EMR Serverless of
        ``hyperplane.runners.emr_serverless``.

    Returns
    -------
    JobHandle
        With ``wait()``, ``result()``, ``logs()``, ``cancel()`` and ``resume()``.

    Raises
    ------
    RequestError
        With every fault of the pipeline and of the call; nothing was submitted.

    Warns
    -----
    UserWarning
        For each possible mistake in the file, its notebooks or the label, and for each parameter
        that no step reads.

    Examples
    --------
    >>> from hyperplane.jobs import Pipeline, Step, submit
    >>> steps = [Step(name="hello", kind="command", argv=("echo", "Hello, World!"))]
    >>> job = submit(Pipeline.from_steps("greeting", steps))
    >>> job.wait()
    'done'
    >>> job.logs()
    'Hello, World!\n'
    """
    job = job_control.new_job(
        pipeline,
        name=name,
        job_type=job_type,
        timeout=timeout,
        active_timeout=active_timeout,
        max_retries=max_retries,
        parameters=parameters,
        runner=runner,
        runner_options=runner_options,
    )
    return JobHandle(job_control.submit_job(job, runner_options=runner_options).id)
