"""Submitting, resuming and cancelling jobs."""

from __future__ import annotations

import os
import random
import re
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from hyperplane import config
from hyperplane.errors import Fault, JobError, RequestError, check
from hyperplane.jobs import requirements, wake
from hyperplane.jobs.definition.models import Pipeline
from hyperplane.jobs.definition.reading import read_pipeline
from hyperplane.jobs.environment import as_text, parameter_faults, secrets
from hyperplane.jobs.home import home, the_store, this_machine
from hyperplane.jobs.programs import Handed
from hyperplane.jobs.states import CANCELLED, OPEN, PENDING, PROCESSED, Job

if TYPE_CHECKING:
    from hyperplane.jobs.store import JobStore

#: The documented form of a job's name.
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LONGEST = 86_400
#: For jobs that nobody has named.
_FIRST = (
    "amber", "brisk", "calm", "clear", "crisp", "early", "fair", "fresh", "gentle", "keen",
    "mild", "noble", "plain", "quiet", "rapid", "sound", "steady", "sunny", "swift", "warm",
)  # fmt: skip
_SECOND = (
    "acorn", "birch", "brook", "cedar", "clover", "falcon", "harbour", "heron", "island", "juniper",
    "lantern", "maple", "meadow", "otter", "pebble", "ridge", "river", "sparrow", "thistle",
)  # fmt: skip
#: Characters of a job's label.
_LONGEST_TYPE = 64


class Submitted(NamedTuple):
    """The identity of a job, and of this run of it."""

    id: str
    run_id: str


def new_job(
    pipeline: str | os.PathLike[str] | Pipeline,
    *,
    name: str | None = None,
    job_type: str | None = None,
    timeout: float | None = None,
    active_timeout: float | None = None,
    max_retries: int | None = None,
    parameters: Mapping[str, Any] | None = None,
    schedule: str = "",
) -> Job:
    """A job that is not kept yet; see :func:`hyperplane.jobs.submit`.

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
    retries = settings.max_retries if max_retries is None else max_retries
    times = {
        "timeout": settings.timeout if timeout is None else timeout,
        "active_timeout": settings.active_timeout if active_timeout is None else active_timeout,
    }
    for field, value in times.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not _is_limit(value):
            allowed = f"seconds, more than 0 and up to {_LONGEST}, or -1 for no limit"
            faults.append(Fault(field, repr(value), allowed))
    if isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries <= 10:
        faults.append(Fault("max_retries", repr(max_retries), "a whole number from 0 to 10"))
    if name is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
        allowed = "up to 63 letters, digits and . _ -, with a letter or digit at both ends"
        faults.append(Fault("name", repr(name), allowed))
    label = "basic" if made is None or made.job_type is None else made.job_type
    label = label if job_type is None else job_type
    if not (isinstance(label, str) and label.isprintable() and 0 < len(label) <= _LONGEST_TYPE):
        allowed = f"text of 1 to {_LONGEST_TYPE} characters in one line"
        faults.append(Fault("job_type", repr(label)[:80], allowed))
    if made is not None:
        faults += requirements.name_faults(made)
        wanted = {secret for step in made.steps for secret in step.secrets}
        _, missing = secrets(sorted(wanted), os.environ, settings.secrets)
        advice = f"set the variable, or write the file {settings.secrets}/<name>"
        faults += [Fault("secrets", one, "a secret that is there", advice) for one in missing]
    check(faults)
    assert made is not None  # noqa: S101 - or there are faults
    job_id = str(uuid.uuid4())
    return Job(
        id=job_id,
        run_id=str(uuid.uuid4()),
        name=name or _made_up(job_id),
        job_type=label,
        status=PENDING,
        submitted=time.time(),
        timeout=float(times["timeout"]),
        active_timeout=float(times["active_timeout"]),
        max_retries=int(retries),
        definition=made.to_json(),
        parameters=as_text(given),
        machine=this_machine(),
        runner="local",
        python=sys.executable,
        folder=str(home() / "jobs" / job_id),
        schedule=schedule,
    )


def _pool_faults(pipeline: Pipeline) -> list[Fault]:
    """Pools that steps name and that there are not."""
    faults = []
    for step in pipeline.steps:
        try:
            config.get_pool(step.resources.pool or next(iter(config.pools())))
        except RequestError as error:
            where = f"step {step.name!r}: resources.pool"
            faults += [replace(fault, where=where) for fault in error.faults]
    return faults


def handed_over() -> Handed:
    """What steps of a job submitted here run in: this environment, and this interpreter."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("HYPERPLANE_JOB_")
    }
    environment["DASK_HYPERPLANE__JOBS__HOME"] = str(home())
    if config.jobs().store:
        environment["DASK_HYPERPLANE__JOBS__STORE"] = str(config.jobs().store)
    return Handed(environment)


def send(job: Job) -> Submitted:
    """Keep a job and have it carried on, whatever becomes of this process."""
    # First of the environment: the supervisor looks into the store by itself, too.
    wake.tell(job.id, handed_over())
    the_store().add(job)
    wake.tell()
    return Submitted(job.id, job.run_id)


def id_of(job: Any) -> str:
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
    store = the_store()
    job = store.get(id_of(job_id))
    if job.machine != this_machine():
        raise JobError(job.id, f"its files are on {job.machine}; resume it there")
    if job.status == "done":
        raise JobError(job.id, "it is done; submit it again for another run")
    if job.status in OPEN and wake.running() is not None:
        raise JobError(job.id, f"it is {job.status} already; to begin anew, cancel it first")
    again = {
        "status": PENDING, "reason": "", "submitted": time.time(), "started": 0.0, "ended": 0.0,
        "tries": 0, "cancelled": False,
    }  # fmt: skip
    wake.tell(job.id, handed_over())
    store.update(job.id, among=PROCESSED, **again)
    wake.tell()
    return Submitted(job.id, job.run_id)


def cancel(job_id: str | Submitted) -> Job:
    """End a job, politely and then surely; one that has ended stays as it is.

    Parameters
    ----------
    job_id : str or Submitted
        The job.

    Returns
    -------
    Job
        As it was when this was asked.

    Raises
    ------
    JobError
        When there is no such job.
    """
    store = the_store()
    job = store.get(id_of(job_id))
    ended = {"status": CANCELLED, "reason": "somebody cancelled it", "ended": time.time()}
    # One that nobody has begun needs nobody to end it.
    if not store.update(job.id, among=[PENDING], **ended) and store.update(
        job.id, among=OPEN, cancelled=True
    ):
        wake.tell()
    return job


def look_after(store: JobStore) -> None:
    """Start the supervisor when jobs wait for one that was killed."""
    if store.open_ids(this_machine()) and wake.running() is None:
        wake.tell()


def _is_limit(value: float) -> bool:
    return value == -1 or 0 < value <= _LONGEST


def _made_up(job_id: str) -> str:
    """A name; its end is the beginning of the id, so that few jobs share one."""
    first, second = random.choice(_FIRST), random.choice(_SECOND)  # noqa: S311 - no secret
    return f"{first}_{second}_{job_id[:4]}"
