"""Submitting, resuming and cancelling jobs."""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from hyperplane import config
from hyperplane.errors import Fault, HyperplaneError, JobError, RequestError, check
from hyperplane.jobs import (
    call_site,
    cancel_marker,
    notebook_checks,
    requirements,
    supervisor_client,
)
from hyperplane.jobs.adoption import can_adopt, hold_submission_lock
from hyperplane.jobs.definition.models import Pipeline
from hyperplane.jobs.definition.pipeline_file import read_pipeline
from hyperplane.jobs.environment import find_secrets, parameter_faults, parameters_as_text
from hyperplane.jobs.home import jobs_folder, open_store, this_machine
from hyperplane.jobs.options import (
    label_faults,
    label_warnings,
    option_faults,
    pool_faults,
    runner_faults,
)  # fmt: skip
from hyperplane.jobs.parameter_use import find_unread_parameters
from hyperplane.jobs.runners import has_shared_files, resolve_options
from hyperplane.jobs.states import CANCELLED, OPEN, PENDING, PROCESSED, Job
from hyperplane.jobs.step_command import SubmissionEnvironment
from hyperplane.jobs.submission_snapshot import load_snapshot as kept_of
from hyperplane.jobs.submission_snapshot import save_snapshot
from hyperplane.public_calls import check_call
from hyperplane.units import in_seconds

if TYPE_CHECKING:
    from hyperplane.jobs.store import JobStore

#: For jobs that nobody has named.
_FIRST = (
    "amber", "brisk", "calm", "clear", "crisp", "early", "fair", "fresh", "gentle", "keen",
    "mild", "noble", "plain", "quiet", "rapid", "sound", "steady", "sunny", "swift", "warm",
)  # fmt: skip
_SECOND = (
    "acorn", "birch", "brook", "cedar", "clover", "falcon", "harbour", "heron", "island", "juniper",
    "lantern", "maple", "meadow", "otter", "pebble", "ridge", "river", "sparrow", "thistle",
)  # fmt: skip


class Submitted(NamedTuple):
    """The identity of a job, and of this run of it."""

    id: str
    run_id: str


def new_job(
    pipeline: str | os.PathLike[str] | Pipeline,
    *,
    name: str | None = None,
    job_type: str | None = None,
    timeout: float | str | None = None,
    active_timeout: float | str | None = None,
    max_retries: int | None = None,
    parameters: Mapping[str, Any] | None = None,
    schedule: str = "",
    runner: str = "local",
    runner_options: Mapping[str, Any] | None = None,
    here: bool = True,
) -> Job:
    """A job that is not kept yet; see :func:`hyperplane.jobs.submit`.

    Parameters
    ----------
    pipeline, name, job_type, timeout, active_timeout, max_retries, parameters
        As there.
    schedule : str
        The schedule that it is a run of.
    runner, runner_options
        As there.
    here : bool
        Whether its steps find what this machine has: then what they need must be there.

    Raises
    ------
    RequestError
        With all that is wrong with the pipeline and with the call.
    """
    faults: list[Fault] = []
    made = None
    try:
        made = pipeline if isinstance(pipeline, Pipeline) else read_pipeline(pipeline)
    except RequestError as error:
        faults += error.faults
    settings = config.jobs()
    given: Any = {} if parameters is None else parameters
    if isinstance(given, Mapping):
        faults += parameter_faults(given)
    else:
        faults.append(Fault("parameters", type(given).__name__, "a mapping of names to values"))
    timeout = settings.timeout if timeout is None else timeout
    active_timeout = settings.active_timeout if active_timeout is None else active_timeout
    max_retries = settings.max_retries if max_retries is None else max_retries
    faults += option_faults(name, timeout, active_timeout, max_retries)
    label = "basic" if made is None or made.job_type is None else made.job_type
    label = label if job_type is None else job_type
    faults += label_faults(label)
    faults += (
        runner_faults(runner, {} if runner_options is None else runner_options, made)
        if here
        else []
    )
    if made is not None:
        faults += requirements.name_faults(made)
        faults += pool_faults(made)
        # What is rendered finds its secrets where it is submitted or runs.
        wanted = {secret for step in made.steps for secret in step.secrets if here}
        _, missing = find_secrets(sorted(wanted), os.environ, settings.secrets)
        advice = f"set the variable, or write the file {settings.secrets}/<name>"
        faults += [Fault("secrets", one, "a secret that is there", advice) for one in missing]
    check(faults)
    assert made is not None  # noqa: S101 - or there are faults
    job_id = str(uuid.uuid4())
    return Job(
        id=job_id,
        run_id=str(uuid.uuid4()),
        name=name or _generate_name(job_id),
        job_type=label,
        status=PENDING,
        submitted=time.time(),
        timeout=float(in_seconds(timeout)),
        active_timeout=float(in_seconds(active_timeout)),
        max_retries=max_retries,
        definition=made.to_json(),
        parameters=parameters_as_text(given),
        machine=this_machine(),
        runner=runner,
        python=sys.executable,
        folder=str(jobs_folder() / "jobs" / job_id),
        schedule=schedule,
    )


def capture_environment() -> SubmissionEnvironment:
    """What steps of a job submitted here run in: this environment, and this interpreter."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("HYPERPLANE_JOB_")
    }
    environment["DASK_HYPERPLANE__JOBS__HOME"] = str(jobs_folder())
    if config.jobs().store:
        environment["DASK_HYPERPLANE__JOBS__STORE"] = str(config.jobs().store)
    return SubmissionEnvironment(environment)


def unread_parameter_warnings(job: Job, source: str | None = None) -> list[str]:
    """Which parameters of a job no step reads; ``source`` is the text of its function, if any."""
    return find_unread_parameters(job.pipeline, job.parameters, source)


def job_warnings(job: Job, source: str | None = None) -> list[str]:
    """What may be a slip in a job, though it can run."""
    found = [*job.pipeline.warnings, *label_warnings(job.job_type)]
    if has_shared_files(job.runner):
        found += notebook_checks.kernel_warnings(job.pipeline)
    found += notebook_checks.notebook_warnings(job.pipeline, job.parameters)
    return found + unread_parameter_warnings(job, source)


def submit_job(
    job: Job,
    *,
    warn: bool = True,
    runner_options: Mapping[str, Any] | None = None,
    source: str | None = None,
) -> Submitted:
    """Keep a job and have it carried on, whatever becomes of this process.

    Parameters
    ----------
    job : Job
        The job.
    warn : bool
        Whether to warn of what may be a slip.
    runner_options : mapping, optional
        Those that it was made with.
    source : str, optional
        The text of the function that it runs, if it runs one.

    Raises
    ------
    JobError
        When its folder cannot be used, or the supervisor cannot be started.
    """
    for text in job_warnings(job, source) if warn else ():
        call_site.warn(text)
    handed = capture_environment()
    save_snapshot(
        job,
        handed.environment,
        resolve_options(job.runner, runner_options or {}),
        unread_parameter_warnings(job, source),
    )
    with hold_submission_lock(job):
        try:
            # First of the environment: the supervisor looks into the store by itself, too.
            supervisor_client.notify_supervisor(job.id, handed)
            open_store().add(job)
        except HyperplaneError:  # nothing is submitted, so nothing is left
            shutil.rmtree(job.place, ignore_errors=True)
            raise
        supervisor_client.notify_supervisor()
    return Submitted(job.id, job.run_id)


def to_job_id(job: Any) -> str:
    """The id of a job: text as it is, or of what submitting the job gave.

    Parameters
    ----------
    job : str, Submitted, tuple or JobHandle
        The job; of a tuple the first.

    Raises
    ------
    RequestError
        When it is nothing of these.

    Examples
    --------
    >>> id_of("8f2c"), id_of(Submitted("8f2c", "11d0"))
    ('8f2c', '8f2c')
    """
    found = job[0] if isinstance(job, tuple) and job else getattr(job, "id", job)
    if not isinstance(found, (str, uuid.UUID)):
        allowed = "the id of a job, or what submitting it gave"
        raise RequestError([Fault("job", type(job).__name__, allowed)])
    return str(found)


@check_call
def resume(job_id: str | Submitted) -> Submitted:
    """Go on with a job that has ended, or whose supervisor was killed, from its finished steps.

    Parameters
    ----------
    job_id : str or Submitted
        The job.

    Returns
    -------
    Submitted
        The same job.

    Raises
    ------
    JobError
        When there is no such job, it belongs to another machine, it is done, or it runs.
    """
    store = open_store()
    job = store.get(to_job_id(job_id))
    if job.machine != this_machine():
        raise JobError(job.id, f"its files are on {job.machine}; resume it there")
    if job.status == "done":
        raise JobError(job.id, "it is done; submit it again for another run")
    if job.status in OPEN and (
        supervisor_client.supervisor_pid() is not None or not can_adopt(job)
    ):
        raise JobError(job.id, f"it is {job.status} already; to begin anew, cancel it first")
    again = {
        "status": PENDING, "reason": "", "submitted": time.time(), "started": 0.0, "ended": 0.0,
        "tries": 0, "cancelled": False,
    }  # fmt: skip
    handed = capture_environment()
    save_snapshot(job, handed.environment, kept_of(job).runner)
    cancel_marker.remove_marker(job)
    with hold_submission_lock(job):
        supervisor_client.notify_supervisor(job.id, handed)
        store.update(job.id, if_status=PROCESSED, **again)
        supervisor_client.notify_supervisor()
    return Submitted(job.id, job.run_id)


@check_call
def cancel(job_id: str | Submitted, *, by: str = "from Python") -> Job:
    """End a job, politely and then surely; one that has ended stays as it is.

    Parameters
    ----------
    job_id : str or Submitted
        The job.
    by : str
        With what, for the job's reason, which has the user, the machine and the time, too.

    Returns
    -------
    Job
        As it was when this was asked.

    Raises
    ------
    JobError
        When there is no such job.
    """
    store = open_store()
    job = store.get(to_job_id(job_id))
    reason = cancellation_reason(by)
    ended = {"status": CANCELLED, "reason": reason, "ended": time.time()}
    # One that nobody has begun needs nobody to end it.
    if not store.update(job.id, if_status=[PENDING], **ended) and store.update(
        job.id, if_status=OPEN, cancelled=True, reason=reason
    ):
        supervisor_client.notify_supervisor()
    return job


def ensure_supervisor(store: JobStore) -> None:
    """Start the supervisor when jobs wait for one that was killed."""
    if supervisor_client.supervisor_pid() is not None:
        return
    if any(can_adopt(job) for job in store.find(statuses=OPEN, machine=this_machine())):
        supervisor_client.notify_supervisor()


def cancellation_reason(by: str) -> str:
    """The reason of a job that this user cancels now."""
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    return f"cancelled by {this_machine()} at {at}, {by}"


def _generate_name(job_id: str) -> str:
    """A name; its end is the beginning of the id, so that few jobs share one."""
    first, second = random.choice(_FIRST), random.choice(_SECOND)  # noqa: S311 - no secret
    return f"{first}_{second}_{job_id[:4]}"
