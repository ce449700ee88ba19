"""Submitting, resuming and cancelling jobs."""

from __future__ import annotations

import os
import random
import re
import sys
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from hyperplane import config
from hyperplane.errors import Fault, JobError, RequestError, check
from hyperplane.jobs import wake
from hyperplane.jobs.definition.models import Pipeline
from hyperplane.jobs.definition.reading import read_pipeline
from hyperplane.jobs.environment import as_text, parameter_faults, secrets
from hyperplane.jobs.home import home, the_store, this_machine
from hyperplane.jobs.programs import Handed
from hyperplane.jobs.states import OPEN, PENDING, PROCESSED, Job

if TYPE_CHECKING:
    from hyperplane.jobs.store import JobStore

#: The documented form of a job's name.
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LONGEST = 86_400
#: For jobs that nobody has named.
_FIRST = ("brisk", "calm", "clear", "keen", "mild", "quiet", "rapid", "sound", "steady", "warm")
_SECOND = ("brook", "cedar", "harbour", "heron", "lantern", "maple", "meadow", "otter", "ridge")


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
    if made is not None:
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
        name=name or f"{random.choice(_FIRST)}_{random.choice(_SECOND)}",  # noqa: S311
        job_type=job_type or made.job_type or "basic",
        status=PENDING,
        submitted=time.time(),
        timeout=float(times["timeout"]),
        active_timeout=float(times["active_timeout"]),
        max_retries=int(retries),
        definition=made.to_json(),
        parameters=as_text(given),
        machine=this_machine(),
        runner="local",
        folder=str(home() / "jobs" / job_id),
        schedule=schedule,
    )


def handed_over() -> Handed:
    """What steps of a job submitted here run in: this environment, and this interpreter."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("HYPERPLANE_JOB_")
    }
    environment["DASK_HYPERPLANE__JOBS__HOME"] = str(home())
    if config.jobs().store:
        environment["DASK_HYPERPLANE__JOBS__STORE"] = str(config.jobs().store)
    return Handed(environment, sys.executable)


def send(job: Job) -> Submitted:
    """Keep a job and have it carried on, whatever becomes of this process."""
    # First of the environment: the supervisor looks into the store by itself, too.
    wake.tell(job.id, handed_over())
    the_store().add(job)
    wake.tell()
    return Submitted(job.id, job.run_id)


def resume(job_id: str) -> Submitted:
    """Go on with a job that has ended, or whose supervisor was killed, from its finished steps.

    Parameters
    ----------
    job_id : str
        The job.

    Returns
    -------
    Submitted
        The same job.

    Raises
    ------
    JobError
        When there is no such job, it belongs to another machine, or it is done.
    """
    store = the_store()
    job = store.get(job_id)
    if job.machine != this_machine():
        raise JobError(job.id, f"its files are on {job.machine}; resume it there")
    if job.status == "done":
        raise JobError(job.id, "it is done; submit it again for another run")
    again = {
        "status": PENDING, "reason": "", "submitted": time.time(), "started": 0.0, "ended": 0.0,
        "tries": 0, "cancelled": False,
    }  # fmt: skip
    wake.tell(job.id, handed_over())
    store.update(job.id, among=PROCESSED, **again)
    wake.tell()
    return Submitted(job.id, job.run_id)


def cancel(job_id: str) -> Job:
    """End a job, politely and then surely; one that has ended stays as it is.

    Parameters
    ----------
    job_id : str
        The job.

    Returns
    -------
    Job
        As it was when this was asked.
    """
    store = the_store()
    job = store.get(job_id)
    if store.update(job.id, among=OPEN, cancelled=True):
        wake.tell()
    return job


def look_after(store: JobStore) -> None:
    """Start the supervisor when jobs wait for one that was killed."""
    if store.open_ids(this_machine()) and wake.running() is None:
        wake.tell()


def _is_limit(value: float) -> bool:
    return value == -1 or 0 < value <= _LONGEST
