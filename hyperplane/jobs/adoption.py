"""Which jobs of a machine this running system may carry on: containers may share a host name."""

from __future__ import annotations

from hyperplane.jobs import kept, wake
from hyperplane.jobs.around import running_system
from hyperplane.jobs.processes import is_locked
from hyperplane.jobs.states import Job


def may_carry_on(job: Job) -> bool:
    """Whether a supervisor of this running system may carry a job on.

    Parameters
    ----------
    job : Job
        A job of this machine's name that has not ended.

    Returns
    -------
    bool
        True for its own jobs, and for those of another boot or container of the same host name
        that is gone: it has no supervisor, and no step of the job runs. Their locks say so, also
        where the numbers of processes say nothing.
    """
    system = kept.system_of(job)
    if system in ("", running_system()):
        return True
    return wake.running(system) is None and not _has_running_steps(job)


def _has_running_steps(job: Job) -> bool:
    return any(is_locked(file) for file in (job.place / "steps").rglob("attempt-*.lock"))
