"""Jobs as the GraphQL type ``PipelineJob``, with the fields that published programs ask for.

Fields of the platform without a counterpart are null. Those that a program has set itself, such as
``branchName``, are in the response to the submission, and null later: jobs do not store them.
"""

from __future__ import annotations

import enum
import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NewType

import strawberry

from hyperplane.jobs.store.job_records import (
    CANCELLED,
    DONE,
    FAILED,
    IN_PROGRESS,
    PENDING,
    SCHEDULED,
    TIMED_OUT,
    Job,
)  # fmt: skip
from hyperplane.jobs.store.jobs_home import open_store

#: Output that is a time of a job, in the form of the platform: ``2026-11-29T13:05:00.250Z``.
JobTime = NewType("JobTime", datetime)
IMMEDIATE = "immediate"


@strawberry.enum
class JobStat(enum.Enum):
    """What ``getJobStat`` counts."""

    COUNT_ALL = "all"
    COUNT_CANCELLED = CANCELLED
    COUNT_DONE = DONE
    COUNT_FAILED = FAILED
    COUNT_IN_PROGRESS = IN_PROGRESS
    COUNT_PENDING = PENDING
    COUNT_SCHEDULED = SCHEDULED
    COUNT_TIMED_OUT = TIMED_OUT


@strawberry.enum
class JobStatus(enum.Enum):
    """Status that ``getJobStat`` is limited to."""

    CANCELLED = CANCELLED
    DONE = DONE
    FAILED = FAILED
    IN_PROGRESS = IN_PROGRESS
    PENDING = PENDING
    SCHEDULED = SCHEDULED
    TIMED_OUT = TIMED_OUT


@strawberry.enum
class TimeFrame(enum.Enum):
    """Time within which jobs have ended; jobs that have not ended are in each of them."""

    TOTAL = "total"
    T_10M = 600
    T_1H = 3_600
    T_24H = 86_400


def count_by_status(stat: JobStat, frame: TimeFrame, status: JobStatus | None) -> int:
    """Return how many jobs have a status, and have ended in a time frame if they have ended."""
    every = {each.value for each in JobStatus}
    statuses = every if stat is JobStat.COUNT_ALL else {stat.value}
    statuses &= every if status is None else {status.value}
    since = None if frame is TimeFrame.TOTAL else time.time() - int(frame.value)
    return open_store().count(sorted(statuses), ended_since=since)


def write_time(value: datetime) -> str:
    """Return a time in the form of the platform."""
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@strawberry.type
class Parameter:
    """A parameter of a job."""

    key: str
    value: str
    id: str
    pipeline_job_id: str


@strawberry.type
class HyperplaneUser:
    """A user of the platform."""

    id: str
    email: str


@strawberry.type
class NotificationTarget:
    """Where a message about a job is sent."""

    id: str
    email: str | None = None
    name: str | None = None


@strawberry.type
class NotificationTargetOfJob:
    """Connection of a job and a target."""

    notification_target: NotificationTarget


@strawberry.type
class PipelineJob:
    """A job."""

    id: str
    run_id: str
    job_name: str
    job_type: str
    status: str
    status_reason: str | None
    start_time: JobTime | None
    completion_time: JobTime | None
    duration: float | None
    output: str | None
    dask_dashboard_url: str | None
    schedule: str
    timeout: int
    active_timeout: int
    max_retries: int
    parameters: list[Parameter]
    owner: str
    displayed_owner: str
    pipeline_yaml_path: str | None = None
    output_notebooks_path: str | None = None
    working_dir: str | None = None
    pipeline_type: str | None = None
    timezone: str | None = None
    branch_name: str | None = None
    commit_id: str | None = None
    branch_name_or_commit: str | None = None
    git_server_name: str | None = None
    hyperplane_user_email: str | None = None
    hyperplane_user_id: str | None = None
    hyperplane_service_account_id: str | None = None
    service_account_name: str | None = None
    group: str | None = None
    custom_message: str | None = None
    debuggable: bool | None = None
    pinned: bool | None = None
    preemptible: bool | None = None
    priority_class: str | None = None
    run_parallel: bool | None = None
    no_git_init: bool | None = None
    no_hyperplane_commands: bool | None = None
    notifications_enabled: bool | None = None
    notification_targets: list[NotificationTargetOfJob] = strawberry.field(default_factory=list)
    image_hash: str | None = None
    exposed_port: str | None = None
    dashboard_prefix: str | None = None
    grafana_link: str | None = None
    ssh_command: str | None = None
    user_service_subdomain: str | None = None
    max_retries_per_step: int | None = None
    timeout_per_step: int | None = None
    min_replicas: int | None = None
    max_hpa_range: int | None = None
    no_vs_rewrite: bool | None = strawberry.field(name="noVSRewrite", default=None)
    estimated_cost: float | None = None
    department: str | None = None
    parent_job: PipelineJobReference | None = None
    child_jobs: list[PipelineJobReference] = strawberry.field(default_factory=list)


@strawberry.type
class PipelineJobReference:
    """Another job."""

    id: str
    status: str


def to_pipeline_job(job: Job, submitted: Mapping[str, Any] | None = None) -> PipelineJob:
    """Return a job with the fields that its submission has set, by their names here."""
    parameters = [
        Parameter(key=key, value=value, id=f"{job.id}/{key}", pipeline_job_id=job.id)
        for key, value in job.parameters.items()
    ]
    return PipelineJob(
        id=job.id,
        run_id=job.run_id,
        job_name=job.name,
        job_type=job.job_type,
        status=job.status,
        status_reason=job.reason or None,
        start_time=to_time(job.requested),
        completion_time=to_time(job.ended),
        duration=_to_duration(job),
        output=job.output,
        dask_dashboard_url=job.dashboard or None,
        schedule=job.schedule or IMMEDIATE,
        timeout=int(job.timeout),
        active_timeout=int(job.active_timeout),
        max_retries=job.max_retries,
        parameters=parameters,
        owner=job.machine,
        displayed_owner=job.machine,
        **dict(submitted or {}),
    )


def to_time(seconds: float) -> JobTime | None:
    """Return a time in whole milliseconds, as responses have it.

    None if it has not come, or is of no calendar, as in a damaged store.
    """
    try:
        time = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    whole = time.microsecond // 1000 * 1000
    return JobTime(time.replace(microsecond=whole)) if seconds else None


def _to_duration(job: Job) -> float | None:
    seconds = job.ended - job.requested if job.ended else math.nan
    return round(seconds, 3) if math.isfinite(seconds) else None
