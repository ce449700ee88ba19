"""Submit, resume and cancel jobs."""

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
from hyperplane.core.errors import Fault, HyperplaneError, JobError, RequestError, check
from hyperplane.core.public_calls import check_call
from hyperplane.core.units import in_seconds
from hyperplane.jobs import call_site, supervisor_client
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.pipeline_file import read_pipeline
from hyperplane.jobs.execution import requirements
from hyperplane.jobs.execution.job_folder import (
    can_adopt,
    hold_submission_lock,
    remove_cancel_marker,
)
from hyperplane.jobs.execution.step_environment import find_secrets
from hyperplane.jobs.job_names import find_job
from hyperplane.jobs.notebook_steps import notebook_checks
from hyperplane.jobs.runners.registry import find_budget_faults, has_shared_files, resolve_options
from hyperplane.jobs.store.job_records import CANCELLED, DONE, OPEN, PENDING, Job
from hyperplane.jobs.store.jobs_home import jobs_folder, open_store, this_machine
from hyperplane.jobs.submission.option_checks import (
    label_faults,
    label_warnings,
    machine_warnings,
    option_faults,
    pool_faults,
    runner_faults,
)  # fmt: skip
from hyperplane.jobs.submission.parameters import parameter_faults, parameters_as_text
from hyperplane.jobs.submission.submission_environment import capture_environment
from hyperplane.jobs.submission.submission_snapshot import (
    NoticeRequest,
    load_snapshot,
    remove_snapshot,
    save_snapshot,
)
from hyperplane.jobs.submission.unread_parameters import find_unread_parameters

if TYPE_CHECKING:
    from hyperplane.jobs.store.job_store import JobStore

#: Words of generated job names.
_ADJECTIVES = (
    "amber", "brisk", "calm", "clear", "crisp", "early", "fair", "fresh", "gentle", "keen",
    "mild", "noble", "plain", "quiet", "rapid", "sound", "steady", "sunny", "swift", "warm",
)  # fmt: skip
_NOUNS = (
    "acorn", "birch", "brook", "cedar", "clover", "falcon", "harbor", "heron", "island", "juniper",
    "lantern", "maple", "meadow", "otter", "pebble", "ridge", "river", "sparrow", "thistle",
)  # fmt: skip


class Submitted(NamedTuple):
    """Result of a submission.

    Parameters
    ----------
    id : str
        Id of the job.
    run_id : str
        Id of this run of the job.
    """

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
    check_machine: bool = True,
) -> Job:
    """Create a job without submitting it; see :func:`hyperplane.jobs.submit`.

    Parameters
    ----------
    pipeline, name, job_type, timeout, active_timeout, max_retries, parameters
        As for :func:`hyperplane.jobs.submit`.
    schedule : str
        Name of the schedule that submits the job, if any.
    runner, runner_options
        As for :func:`hyperplane.jobs.submit`.
    check_machine : bool
        Whether the runner and the secrets must be available on this machine.

    Raises
    ------
    RequestError
        With every fault of the pipeline and of the call.
    """
    faults: list[Fault] = []
    parsed = None
    try:
        parsed = pipeline if isinstance(pipeline, Pipeline) else read_pipeline(pipeline)
    except RequestError as error:
        faults += error.faults
    settings = config.jobs()
    parameter_values: Any = {} if parameters is None else parameters
    if isinstance(parameter_values, Mapping):
        faults += parameter_faults(parameter_values)
    else:
        faults.append(
            Fault("parameters", type(parameter_values).__name__, "a mapping of names to values")
        )
    timeout = settings.timeout if timeout is None else timeout
    active_timeout = settings.active_timeout if active_timeout is None else active_timeout
    max_retries = settings.max_retries if max_retries is None else max_retries
    faults += option_faults(name, timeout, active_timeout, max_retries)
    label = "basic" if parsed is None or parsed.job_type is None else parsed.job_type
    label = label if job_type is None else job_type
    faults += label_faults(label)
    faults += (
        runner_faults(runner, {} if runner_options is None else runner_options, parsed)
        if check_machine
        else []
    )
    if parsed is not None:
        faults += requirements.name_faults(parsed)
        faults += pool_faults(parsed)
        # Rendered jobs find their secrets where they are submitted or run.
        secret_names = {secret for step in parsed.steps for secret in step.secrets if check_machine}
        _, missing = find_secrets(sorted(secret_names), os.environ, settings.secrets)
        advice = f"set the environment variable, or write the file {settings.secrets}/<name>"
        faults += [Fault("secrets", secret, "an existing secret", advice) for secret in missing]
    check(faults)
    assert parsed is not None  # noqa: S101 - else there are faults
    job_id = str(uuid.uuid4())
    job = Job(
        id=job_id,
        run_id=str(uuid.uuid4()),
        name=name or _generate_name(job_id),
        job_type=label,
        status=PENDING,
        submitted=time.time(),
        timeout=float(in_seconds(timeout)),
        active_timeout=float(in_seconds(active_timeout)),
        max_retries=max_retries,
        definition=parsed.to_json(),
        parameters=parameters_as_text(parameter_values),
        machine=this_machine(),
        runner=runner,
        python=sys.executable,
        folder=str(jobs_folder() / "jobs" / job_id),
        schedule=schedule,
    )
    if check_machine:
        check(find_budget_faults(job, resolve_options(runner, runner_options or {})))
    return job


def unread_parameter_warnings(job: Job, source: str | None = None) -> list[str]:
    """Describe the parameters of a job that no step reads.

    ``source`` is the source of the function that the job runs, if any.
    """
    return find_unread_parameters(job.pipeline, job.parameters, source)


def job_warnings(job: Job, source: str | None = None) -> list[str]:
    """Return warnings of possible mistakes in a job that can run."""
    texts = [*job.pipeline.warnings, *label_warnings(job.job_type)]
    if has_shared_files(job.runner):
        texts += notebook_checks.kernel_warnings(job.pipeline)
    texts += notebook_checks.notebook_warnings(job.pipeline, job.parameters)
    if job.runner == "local":
        texts += machine_warnings(job.pipeline)
    return texts + unread_parameter_warnings(job, source)


def submit_job(
    job: Job,
    *,
    warn: bool = True,
    runner_options: Mapping[str, Any] | None = None,
    source: str | None = None,
    notify: NoticeRequest | None = None,
) -> Submitted:
    """Store a job and notify the supervisor, which runs it independently of this process.

    Parameters
    ----------
    job : Job
        The job.
    warn : bool
        Whether to warn of possible mistakes.
    runner_options : mapping, optional
        Options that the job was created with.
    source : str, optional
        Source of the function that it runs, if any.
    notify : NoticeRequest, optional
        Where to send messages about it, and their text.

    Raises
    ------
    JobError
        If its folder cannot be used, or the supervisor cannot be started.
    """
    for text in job_warnings(job, source) if warn else ():
        call_site.warn(text)
    submission = capture_environment()
    save_snapshot(
        job,
        submission.environment,
        resolve_options(job.runner, runner_options or {}),
        unread_parameter_warnings(job, source),
        notify,
    )
    with hold_submission_lock(job):
        try:
            # First: without its packages the supervisor would not start.
            store = open_store()
            # Before the job: the supervisor polls the store, and may start the job at once.
            supervisor_client.notify_supervisor(job.id, submission)
            store.add(job)
        except HyperplaneError:  # not submitted: leave no files
            shutil.rmtree(job.folder_path, ignore_errors=True)
            raise
        supervisor_client.notify_supervisor()
    return Submitted(job.id, job.run_id)


def to_job_id(job: Any) -> str:
    """Return the id of a job from its id, its handle, or the result of its submission.

    Parameters
    ----------
    job : str, Submitted, tuple or JobHandle
        The job; for a tuple its first item.

    Raises
    ------
    RequestError
        If it is none of these.

    Examples
    --------
    >>> to_job_id("8f2c"), to_job_id(Submitted("8f2c", "11d0"))
    ('8f2c', '8f2c')
    """
    job_id = job[0] if isinstance(job, tuple) and job else getattr(job, "id", job)
    if not isinstance(job_id, (str, uuid.UUID)):
        allowed = "a job id, or the result of submitting a job"
        raise RequestError([Fault("job", type(job).__name__, allowed)])
    return str(job_id)


@check_call
def resume(job_id: str | Submitted) -> Submitted:
    """Resume a job that has ended or lost its supervisor; finished steps are not repeated.

    Parameters
    ----------
    job_id : str or Submitted
        The job, as for :class:`JobHandle`.

    Returns
    -------
    Submitted
        The same job.

    Raises
    ------
    JobError
        If there is no such job, it belongs to another machine, it is done or running, or its
        definition is damaged.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from hyperplane.jobs import Pipeline, Step, resume, submit
    >>> file = pathlib.Path(tempfile.mkdtemp(), "data.csv")
    >>> step = Step(name="read", kind="command", argv=("cat", str(file)), retries=0)
    >>> job = submit(Pipeline.from_steps("p", [step]))
    >>> job.wait()
    'failed'
    >>> _ = file.write_text("1,2")
    >>> _ = resume(job.id)
    >>> job.wait()
    'done'
    """
    store = open_store()
    job = find_job(store, to_job_id(job_id))
    if job.machine != this_machine():
        raise JobError(job.id, f"the files of this job are on {job.machine}; resume it there")
    if job.status == DONE:
        raise JobError(job.id, "this job is done; submit it again for another run")
    if job.readable_pipeline is None:
        raise JobError(job.id, "the definition of this job is damaged; submit its pipeline again")
    if job.status in OPEN and (
        supervisor_client.supervisor_pid() is not None or not can_adopt(job)
    ):
        raise JobError(job.id, f"this job is already {job.status}; cancel it to start over")
    reset = {
        "status": PENDING, "reason": "", "started": 0.0, "ended": 0.0, "tries": 0,
        "cancelled": False,
    }  # fmt: skip
    submission = capture_environment()
    try:
        before = load_snapshot(job)
        save_snapshot(job, submission.environment, before.runner, notify=before.notify)
        remove_cancel_marker(job)
        with hold_submission_lock(job):
            supervisor_client.notify_supervisor(job.id, submission)
            if not store.reset(job, **reset):
                store.get(job.id)  # raises an error if the job was removed since
            supervisor_client.notify_supervisor()
    except (FileNotFoundError, JobError):
        if store.get_many([job.id]):
            raise
        remove_snapshot(job)  # in a folder that was created again
        raise JobError(job.id, "this job was removed at the same time; submit it again") from None
    return Submitted(job.id, job.run_id)


@check_call
def cancel(job_id: str | Submitted, *, by: str = "from Python") -> Job:
    """Cancel a job and end its processes; a job that has ended is not changed.

    Processes get SIGTERM, and SIGKILL after a grace period.

    Parameters
    ----------
    job_id : str or Submitted
        The job, as for :class:`JobHandle`.
    by : str
        Origin of the request; the job's reason contains it, the user, the machine and the time.

    Returns
    -------
    Job
        The job before the cancellation.

    Raises
    ------
    JobError
        If there is no such job.

    Examples
    --------
    >>> from hyperplane.jobs import Pipeline, Step, cancel, submit
    >>> step = Step(name="wait", kind="command", argv=("sleep", "600"))
    >>> job = submit(Pipeline.from_steps("p", [step]))
    >>> _ = cancel(job.id)
    >>> job.wait()
    'cancelled'
    """
    store = open_store()
    job = find_job(store, to_job_id(job_id))
    reason = cancellation_reason(by)
    ended = {"status": CANCELLED, "reason": reason, "ended": time.time()}
    # A pending job is cancelled in the store; a running one by its supervisor.
    if not store.update(job.id, if_status=[PENDING], **ended) and store.update(
        job.id, if_status=OPEN, cancelled=True, reason=reason
    ):
        supervisor_client.notify_supervisor()
    return job


def ensure_supervisor(store: JobStore) -> None:
    """Start a supervisor if none is running and this machine has open jobs."""
    if supervisor_client.supervisor_pid() is not None:
        return
    if any(can_adopt(job) for job in store.find(statuses=OPEN, machine=this_machine())):
        supervisor_client.notify_supervisor()


def cancellation_reason(by: str) -> str:
    """Return the reason of a job that this user cancels now."""
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    return f"cancelled by {this_machine()} at {at}, {by}"


def _generate_name(job_id: str) -> str:
    """Generate a name; it ends with a part of the id, so that duplicates are rare."""
    adjective, noun = random.choice(_ADJECTIVES), random.choice(_NOUNS)  # noqa: S311 - no secret
    return f"{adjective}_{noun}_{job_id[:4]}"
