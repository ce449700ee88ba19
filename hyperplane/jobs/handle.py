"""A job in the hands of whoever submitted it."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping
from numbers import Real
from pathlib import Path
from typing import Any, cast

from hyperplane.errors import (
    Fault,
    JobCancelled,
    JobError,
    JobFailed,
    JobTimeout,
    RequestError,
    check,
)  # fmt: skip
from hyperplane.jobs import calls, outputs, submitting
from hyperplane.jobs.definition.models import Pipeline
from hyperplane.jobs.home import open_store
from hyperplane.jobs.states import CANCELLED, DONE, IN_PROGRESS, TIMED_OUT, Attempt, Job
from hyperplane.public_calls import check_call
from hyperplane.tables import as_html, as_text
from hyperplane.units import in_seconds, is_truth_value, whole_number

#: Seconds between looks at a job.
_POLL_SECONDS = 0.1
#: Seconds that may be waited: some thirty years.
_MAX_TIMEOUT = 1e9


@check_call
class JobHandle:
    """A job that was submitted; it goes on whether or not this object is there.

    Parameters
    ----------
    job_id : str or Submitted
        Its id, or the beginning of it, or what submitting it gave.

    Raises
    ------
    JobError
        When there is no such job.
    """

    def __init__(self, job_id: str | submitting.Submitted) -> None:
        self._store = open_store()
        self.id = self._store.get(submitting.to_job_id(job_id)).id

    @property
    def job(self) -> Job:
        """What is kept of it now."""
        return self._store.get(self.id)

    @property
    def status(self) -> str:
        """One of the documented ones, such as ``"in progress"``."""
        return self.job.status

    @property
    def attempts(self) -> list[Attempt]:
        """All attempts at its steps."""
        return self._store.attempts(self.id)

    @check_call
    def wait(self, timeout: float | str | None = None) -> str:
        """Wait until it has ended.

        Parameters
        ----------
        timeout : float or str, optional
            Seconds, or text such as ``"10 min"``; the job goes on after them.

        Returns
        -------
        str
            Its status.

        Raises
        ------
        RequestError
            When ``timeout`` is no time.
        TimeoutError
            When it has not ended in that time.
        """
        limit = _timeout_seconds(timeout)
        deadline = None if limit is None else time.monotonic() + limit
        submitting.ensure_supervisor(self._store)
        looked = time.monotonic()
        while not (job := self.job).processed:
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"job {self.id} is {job.status} after {limit:g} s; it goes on")
            if time.monotonic() - looked > 5:
                submitting.ensure_supervisor(self._store)
                looked = time.monotonic()
            time.sleep(_POLL_SECONDS)
        return job.status

    @check_call
    def result(self, timeout: float | str | None = None) -> Any:
        """Wait until it is done, and return what it has to give.

        Parameters
        ----------
        timeout : float or str, optional
            Seconds, or text such as ``"10 min"``; the job goes on after them.

        Returns
        -------
        object
            What the function returned, for a job made of one; else what a step has set with
            ``set_current_job_output``, or None.

        Raises
        ------
        JobFailed, JobCancelled, JobTimeout
            When it did not end well; with the end of the log.
        TimeoutError
            When it has not ended in that time.
        """
        self.wait(timeout)
        job = self.job
        if job.status == DONE:
            return calls.load_result(job) if calls.is_function_job(job) else job.output
        kinds: dict[str, type[JobError]] = {CANCELLED: JobCancelled, TIMED_OUT: JobTimeout}
        kind = kinds.get(job.status, JobFailed)
        last = self.logs(lines=20)
        raise kind(self.id, f"{job.status}: {job.reason}" + (f"\n{last}" if last else ""))

    @check_call
    def cancel(self) -> None:
        """End it, with all processes of its steps."""
        submitting.cancel(self.id)

    @check_call
    def resume(self) -> JobHandle:
        """Go on from its finished steps, after it has failed."""
        submitting.resume(self.id)
        return self

    @check_call
    def logs(self, step: str | None = None, *, lines: int | None = None) -> str:
        """What the last attempt at a step wrote.

        Parameters
        ----------
        step : str, optional
            Its name; by default the step that failed at last, or else one that runs, or else the
            one that ended last. The same is chosen among the chunks of a step.
        lines : int, optional
            Only so many at the end.

        Raises
        ------
        JobError
            When there is no such step, or the log is not there.
        RequestError
            When ``lines`` is not a number of lines.
        """
        faults = []
        number = whole_number(lines)
        if lines is not None and (number is None or number < 0):
            faults.append(Fault("lines", repr(lines)[:80], "a whole number from 0"))
        asked: Any = step
        if not isinstance(asked, str | None):
            faults.append(Fault("step", repr(asked)[:80], "the name of a step"))
        check(faults)
        found = [one for one in self.attempts if one.log and step in (None, one.step)]
        if step is not None and not found:
            names = ", ".join(repr(one.name) for one in self.job.pipeline.steps)
            raise JobError(self.id, f"step {step!r} has written nothing; the steps are {names}")
        if not found:
            return ""
        log = Path(self.job.folder, _most_relevant(found).log)
        try:
            return outputs.read_last_lines(log, number)
        except OSError as error:
            wrong = f"its log {log} cannot be read ({error.strerror})"
            raise JobError(self.id, f"{wrong}; it ran on {self.job.machine}") from error

    @check_call
    def as_rows(self) -> list[tuple[str, str]]:
        """Labels and texts."""
        job = self.job
        rows = [("job", f"{job.name} ({job.id})"), ("status", job.status)]
        rows += [("reason", job.reason)] if job.reason else []
        rows += [("dashboard", job.dashboard)] if job.dashboard else []
        latest = {(one.step, one.chunk): one for one in self.attempts}
        for step in job.pipeline.steps:
            of_step = [one for (name, _), one in latest.items() if name == step.name]
            counts = {one.status: 0 for one in of_step}
            for one in of_step:
                counts[one.status] += 1
            many = step.chunk_count
            said = ", ".join(f"{n} {status}" if many else status for status, n in counts.items())
            rows.append((step.name, (said or "waits") + (f" of {many}" if many else "")))
        return rows

    def __str__(self) -> str:
        return as_text(self.as_rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html(self.as_rows())


def _timeout_seconds(timeout: Any) -> float | None:
    """A timeout in seconds; None for no limit."""
    seconds = in_seconds(timeout)
    is_number = isinstance(seconds, Real) and not is_truth_value(seconds)
    # A time that has passed already is a right one: programs subtract.
    if seconds is None or (is_number and (abs(seconds) < _MAX_TIMEOUT or seconds == math.inf)):
        return cast("float | None", seconds)
    allowed = f"seconds below {_MAX_TIMEOUT:g}, text such as '10 min', or None for no limit"
    raise RequestError([Fault("timeout", repr(timeout)[:80], allowed)])


def _most_relevant(attempts: Iterable[Attempt]) -> Attempt:
    """The attempt to show: the last one of its step or chunk, and a failed one if there is any."""
    last = {
        (one.step, one.chunk): one for one in sorted(attempts, key=lambda one: one.number)
    }.values()
    failed = [one for one in last if one.status not in (DONE, IN_PROGRESS)]
    return max(failed or last, key=lambda one: (one.ended or math.inf, one.started))


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
    r"""Submit a pipeline job, which goes on when this session ends.

    Parameters
    ----------
    pipeline : path or Pipeline
        A pipeline file, a single script or notebook, or steps made in Python.
    name : str, optional
        Up to 63 letters, digits and ``. _ -``; one is made up by default.
    job_type : str, optional
        A label of the job.
    timeout : float or str, optional
        Seconds, or text such as ``"2 hours"``, from now until it must have ended; -1 for no limit.
    active_timeout : float or str, optional
        The same from when its first step starts; -1 for no limit.
    max_retries : int, optional
        How often it is tried again, from its finished steps, after a fault that may pass.
    parameters : mapping, optional
        Names and values; each step finds them in its environment, a notebook in a cell, too.
    runner : {"local", "slurm", "kubernetes"}
        Where its steps run: as processes of this machine, batch jobs of Slurm, or pods.
    runner_options : mapping, optional
        For Kubernetes, settings of the engine of that name, such as ``image`` and ``namespace``,
        in place of those of the configuration; and ``root``, the folder of the image with the
        pipeline's files, without which each step's own file goes with it.

    Returns
    -------
    JobHandle
        With ``wait()``, ``result()``, ``logs()``, ``cancel()`` and ``resume()``.

    Raises
    ------
    RequestError
        With all that is wrong with the pipeline and with the call; nothing was submitted.

    Warns
    -----
    UserWarning
        For each slip that may be none: of the file, of parameters that notebooks do not name, of
        the label.

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
    made = submitting.new_job(
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
    return JobHandle(submitting.submit_job(made, runner_options=runner_options).id)
