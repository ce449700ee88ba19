"""Records of jobs and attempts, and their statuses in the documented wording."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hyperplane.core.errors import RequestError
from hyperplane.core.public_calls import warn_caller
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step

SCHEDULED, PENDING, IN_PROGRESS = "scheduled", "pending", "in progress"
DONE, FAILED, TIMED_OUT, CANCELLED = "done", "failed", "timed out", "cancelled"
#: Statuses of jobs that have ended.
PROCESSED = (DONE, TIMED_OUT, CANCELLED, FAILED)
#: Statuses of jobs that a supervisor must run.
OPEN = (PENDING, IN_PROGRESS)
#: Status of an attempt whose process vanished without an exit code.
LOST = "lost"


@dataclass(frozen=True)
class Job:
    """Record of a job.

    Parameters
    ----------
    id, run_id : str
        Id of the job, and of this run of it.
    name, job_type : str
        Name and label, as submitted.
    status : str
        One of the documented statuses.
    reason : str
        Why the job ended with this status.
    submitted, started, ended : float
        Seconds since 1970; 0 for events that have not happened. ``started`` and ``ended`` are
        those since the last resume.
    timeout, active_timeout : float
        Seconds from submission or the last resume, and from the start; -1 for no limit.
    max_retries : int
        Maximum number of retries of the whole job.
    tries : int
        Number of failed tries since the submission or the last resume.
    definition : str
        The pipeline as JSON.
    parameters : mapping
        Names and values, as text.
    machine, runner : str
        ``user@host`` of the submission, and the runner of the steps.
    python : str
        Python interpreter of the submission.
    folder : str
        Folder for logs and results.
    dashboard : str
        Address of the dashboard of a step's Dask cluster; empty if there is none now.
    output : str or None
        Output that a step has set.
    schedule : str
        Name of the schedule that submitted it, if any.
    cancelled : bool
        Whether its cancellation was requested.
    number : int or None
        Run number among the jobs of the same pipeline, which the store assigns; None for jobs that
        are not in a store, and for those of versions without run numbers.
    resumed : float
        Time of the last resume; 0 for none.
    earlier_seconds : float
        Seconds that its runs before the last resume took.
    """

    id: str
    run_id: str
    name: str
    job_type: str
    status: str
    submitted: float
    timeout: float
    active_timeout: float
    max_retries: int
    definition: str = field(repr=False)
    parameters: Mapping[str, str]
    machine: str
    runner: str
    python: str
    folder: str
    reason: str = ""
    started: float = 0.0
    ended: float = 0.0
    tries: int = 0
    dashboard: str = ""
    output: str | None = None
    schedule: str = ""
    cancelled: bool = False
    number: int | None = field(default=None, compare=False)
    resumed: float = 0.0
    earlier_seconds: float = 0.0

    @cached_property
    def pipeline(self) -> Pipeline:
        """The pipeline with its steps."""
        return Pipeline.from_json(self.definition)

    @cached_property
    def readable_pipeline(self) -> Pipeline | None:
        """The pipeline; None if its definition is damaged, so that the job is shown without it."""
        try:
            return self.pipeline
        except (RequestError, TypeError):
            return None

    @property
    def requested(self) -> float:
        """When it was submitted, or resumed since: the time from which its limits count."""
        return self.resumed or self.submitted

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the pipeline; none if its definition is damaged."""
        return () if self.readable_pipeline is None else self.readable_pipeline.steps

    @property
    def processed(self) -> bool:
        """Whether the job has ended."""
        return self.status in PROCESSED

    @property
    def folder_path(self) -> Path:
        """Folder for logs and results."""
        return Path(self.folder)

    @property
    def place(self) -> Path:
        """Former name of :attr:`folder_path`."""
        warn_caller("Job.place is renamed to Job.folder_path", FutureWarning)
        return self.folder_path

    @cached_property
    def pipeline_name(self) -> str:
        """Name of the pipeline, read without validating the whole pipeline.

        Empty if the definition is damaged: a list of jobs then still shows the job's id.
        """
        try:
            name = str(json.loads(self.definition)["name"])
            name.encode()  # no page and no line can have a lone surrogate
        except (ValueError, LookupError, TypeError, RecursionError):
            return ""
        return name

    @property
    def run_name(self) -> str:
        """Pipeline and run number, such as ``nightly #12``; the job's name without a number."""
        if self.number is None or not self.pipeline_name:
            return self.name
        return f"{self.pipeline_name} #{self.number}"

    def as_dict(self) -> dict[str, Any]:
        """Return the public fields for JSON."""
        names = (
            "id", "run_id", "name", "job_type", "status", "reason", "submitted", "resumed",
            "started", "ended", "earlier_seconds", "timeout", "active_timeout", "max_retries",
            "tries", "machine", "runner", "folder", "dashboard", "output", "schedule", "number",
            "run_name",
        )  # fmt: skip
        fields = {name: getattr(self, name) for name in names}
        return {
            **fields,
            "pipeline": self.pipeline_name,
            "parameters": dict(self.parameters),
        }


@dataclass(frozen=True)
class Attempt:
    """Record of one attempt at a step, or at one chunk of it.

    Parameters
    ----------
    job_id, step : str
        Job and step.
    chunk : int
        Index of the chunk; -1 for a step without chunks.
    number : int
        Number of the attempt, from 1.
    status : str
        ``in progress``, ``done``, ``failed``, ``timed out``, ``cancelled`` or ``lost``.
    started, ended : float
        Seconds since 1970.
    exit_code : int or None
        Exit code of the process; negative for a signal.
    reason : str
        Why it did not succeed.
    fault : str
        Kind of failure: ``input``, ``memory`` or ``passing`` (transient).
    log : str
        Path of its log, relative to the job's folder.
    """

    job_id: str
    step: str
    chunk: int
    number: int
    status: str = IN_PROGRESS
    started: float = 0.0
    ended: float = 0.0
    exit_code: int | None = None
    reason: str = ""
    fault: str = ""
    log: str = ""


@dataclass(frozen=True)
class WorkUnit:
    """Work of one process: a step, or one chunk of it."""

    step: str
    chunk: int = -1
    #: Number of chunks; 0 for a step without chunks.
    chunks: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.step} [{self.chunk}]" if self.chunks else self.step


def timeout_reason(timeout: float) -> str:
    """Return the reason of a job that exceeded its ``timeout``.

    Examples
    --------
    >>> timeout_reason(3600.0)
    'exceeded its timeout of 3600 s from its submission or last resume'
    """
    return f"exceeded its timeout of {timeout:g} s from its submission or last resume"


def name_steps(job: Job, attempts: Iterable[Attempt]) -> list[str]:
    """Return the names of the steps; of those that have begun if the definition is damaged."""
    if job.readable_pipeline is None:
        return list(dict.fromkeys(attempt.step for attempt in attempts))
    return [step.name for step in job.steps]


def count_seconds(job: Job, now: float) -> float | None:
    """Return how long the runs of a job took until now, without the times between them.

    None if it has not begun.
    """
    if not job.started:
        return job.earlier_seconds or None
    return job.earlier_seconds + max(0.0, (job.ended or now) - job.started)
