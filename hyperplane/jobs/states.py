"""The states of jobs, in the documented words, and what is kept of a job and its attempts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hyperplane.jobs.definition.models import Pipeline

SCHEDULED, PENDING, IN_PROGRESS = "scheduled", "pending", "in progress"
DONE, FAILED, TIMED_OUT, CANCELLED = "done", "failed", "timed out", "cancelled"
#: A job in one of these has ended.
PROCESSED = (DONE, TIMED_OUT, CANCELLED, FAILED)
#: A job in one of these wants something done.
OPEN = (PENDING, IN_PROGRESS)
#: Of an attempt whose process is gone without having said how it ended.
LOST = "lost"


@dataclass(frozen=True)
class Job:
    """What is kept of a job.

    Parameters
    ----------
    id, run_id : str
        Its identity, and that of this run of it.
    name, job_type : str
        As it was submitted.
    status : str
        One of the documented ones.
    reason : str
        Why it ended so.
    submitted, started, ended : float
        Seconds since 1970; 0 for what has not happened.
    timeout, active_timeout : float
        Seconds from submission and from the start; -1 for no limit.
    max_retries : int
        How often it is tried again as a whole.
    tries : int
        How often it has been tried.
    definition : str
        The pipeline as JSON.
    parameters : mapping
        Names and texts.
    machine, runner : str
        By whom and where it was submitted, and what runs its steps.
    python : str
        The interpreter of whoever submitted it.
    folder : str
        For logs and results.
    dashboard : str
        Address of the dashboard of the Dask cluster that a step has now.
    output : str or None
        What a step has set.
    schedule : str
        The schedule that it is a run of.
    cancelled : bool
        Whether somebody has asked for its end.
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

    @cached_property
    def pipeline(self) -> Pipeline:
        """The steps."""
        return Pipeline.from_json(self.definition)

    @property
    def processed(self) -> bool:
        """Whether it has ended."""
        return self.status in PROCESSED

    @property
    def place(self) -> Path:
        """The folder for logs and results."""
        return Path(self.folder)

    @property
    def pipeline_name(self) -> str:
        """The name of its pipeline, without the checks of reading the whole pipeline.

        Empty where the definition is damaged: a list of jobs shows the others, and this one's id.
        """
        try:
            return str(json.loads(self.definition)["name"])
        except (ValueError, LookupError, TypeError):
            return ""

    def as_dict(self) -> dict[str, Any]:
        """What may be shown of it, for JSON."""
        names = (
            "id", "run_id", "name", "job_type", "status", "reason", "submitted", "started", "ended",
            "timeout", "active_timeout", "max_retries", "tries", "machine", "runner", "folder",
            "dashboard", "output", "schedule",
        )  # fmt: skip
        shown = {name: getattr(self, name) for name in names}
        return {
            **shown,
            "pipeline": self.pipeline_name,
            "parameters": dict(self.parameters),
        }


@dataclass(frozen=True)
class Attempt:
    """What is kept of one attempt at a step, or at one chunk of it.

    Parameters
    ----------
    job_id, step : str
        Of which step.
    chunk : int
        Of which chunk; -1 where the step is whole.
    number : int
        From 1.
    status : str
        ``in progress``, ``done``, ``failed``, ``timed out``, ``cancelled`` or ``lost``.
    started, ended : float
        Seconds since 1970.
    exit_code : int or None
        What the process ended with; negative for a signal.
    reason : str
        Why it did not end well.
    fault : str
        The kind of fault: ``input``, ``memory`` or ``passing``.
    log : str
        Its log, below the job's folder.
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
    """What one process works on: a step, or one chunk of it."""

    step: str
    chunk: int = -1
    #: How many chunks there are; 0 where the step is whole.
    chunks: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.step} [{self.chunk}]" if self.chunks else self.step


def timeout_reason(timeout: float) -> str:
    """The reason of a job whose time from its submission is over.

    Examples
    --------
    >>> overdue(3600.0)
    'its timeout of 3600 s from its submission is over'
    """
    return f"its timeout of {timeout:g} s from its submission is over"
