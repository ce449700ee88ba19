"""Errors of a start that reached its time limit, or that failed for another cause."""

from __future__ import annotations

import time

from hyperplane.core.errors import StartTimeout
from hyperplane.core.units import plural
from hyperplane.spec.plan import ClusterPlan

#: Least seconds that the scheduler may take for an answer, also after the time limit of the start.
ANSWER_SECONDS = 30.0


class StepTimeout(TimeoutError):
    """A step of a start that runs in this process has not ended within the time limit.

    Attributes
    ----------
    waited : str
        What did not happen, such as "the scheduler did not start".
    place : str
        The call that did not return, as a clause; may be empty.
    """

    def __init__(self, waited: str, place: str = "") -> None:
        super().__init__(f"{waited} in time")
        self.waited, self.place = waited, place


def remaining(plan: ClusterPlan, began: float) -> float:
    """Return the seconds that a start has for an answer of its scheduler."""
    return max(ANSWER_SECONDS, began + plan.request.timeout - time.monotonic())


def step_timeout(
    plan: ClusterPlan, error: StepTimeout, advice: str, log_tail: str = ""
) -> StartTimeout:
    """Return the error of a start that reached its time limit in a step of this process."""
    place = f" When it ended, {error.place}." if error.place else ""
    return StartTimeout(
        plan.engine,
        f"{error.waited} within {plan.request.timeout:g} s (timeout); everything was closed again."
        f"{place} {advice}",
        log_tail,
    )


def start_timeout(
    plan: ClusterPlan,
    connected: int | None,
    advice: str,
    log_tail: str = "",
    processes: int | None = None,
) -> StartTimeout:
    """Return the error of a start that reached its time limit, whose cluster is closed again.

    ``connected`` worker processes have connected; None if their number is not known.
    ``processes`` is the number of worker processes of the cluster, by default that of the plan.
    """
    total = plural(processes or plan.dask_workers, "worker process")
    return StartTimeout(
        plan.engine,
        f"{'not all' if connected is None else connected} of {total} connected within "
        f"{plan.request.timeout:g} s (timeout); everything was closed again. {advice}",
        log_tail,
    )


def is_start_timeout(error: Exception, plan: ClusterPlan, began: float) -> bool:
    """Return whether a start that began at ``began`` (monotonic) has reached its time limit.

    A TimeoutError can also come from a preload of the user or from the operating system. Dask
    passes all of them on as the same error, so only the elapsed time distinguishes them.
    """
    timed_out = any(isinstance(cause, TimeoutError) for cause in find_causes(error))
    return timed_out and time.monotonic() - began >= plan.request.timeout


def describe_cause(error: Exception, plan: ClusterPlan) -> str:
    """Return the first cause of an error, for a start that failed before its time limit."""
    cause = find_causes(error)[-1]
    if isinstance(cause, TimeoutError):
        limit = f"before the time limit of {plan.request.timeout:g} s"
        return f"a preload or the system raised {cause!r} {limit}"
    return str(cause) or type(cause).__name__


def find_causes(error: Exception) -> list[Exception]:
    """Return an exception and the exceptions that caused it, the first cause last."""
    causes = [error]
    while isinstance(cause := causes[-1].__cause__ or causes[-1].__context__, Exception):
        causes.append(cause)
    return causes
