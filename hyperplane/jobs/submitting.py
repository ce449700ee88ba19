"""Former module of :func:`~hyperplane.jobs.job_control.new_job`, for programs that import it."""

from hyperplane.core.public_calls import warn_caller
from hyperplane.jobs.job_control import new_job

__all__ = ["new_job"]

warn_caller("hyperplane.jobs.submitting is now hyperplane.jobs.job_control", FutureWarning)
