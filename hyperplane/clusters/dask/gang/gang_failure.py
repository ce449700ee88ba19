"""Results and errors of a gang, from the outcomes of its ranks."""

from __future__ import annotations

import pickle
import signal
from typing import Any

from hyperplane.clusters.dask.gang.rank_supervisor import RankOutcome
from hyperplane.core.errors import GangFailed
from hyperplane.core.permanent_errors import mark_permanent


def read_result(outcome: RankOutcome, worker: str, restarts: int) -> Any:
    """Return what the function of a rank has returned.

    Raises
    ------
    GangFailed
        If it cannot be unpickled in this process, because it lacks a module of the workers.
    """
    try:
        return pickle.loads(outcome.answer[1:])  # noqa: S301 - from the own workers
    except Exception as error:
        text = (
            f"the result of rank {outcome.rank} on worker {worker} cannot be unpickled in this "
            f"process: {type(error).__name__}: {error}"
        )
        raise GangFailed(
            text, rank=outcome.rank, worker=worker, log_tail=outcome.tail, restarts=restarts
        ) from error


def describe_failure(
    outcome: RankOutcome, worker: str, restarts: int
) -> tuple[GangFailed, BaseException | None]:
    """Return the error of a gang whose first failure this was, and its cause.

    The error has the mark of a permanent error if that of the rank has it.
    """
    summary, trace, cause, has_mark = _read_exception(outcome)
    if outcome.reason:
        ended = f"was ended: {outcome.reason}"
    elif summary:
        ended = f"raised {summary}"
    elif outcome.exit_code < 0:
        ended = f"was killed by signal {_name_signal(-outcome.exit_code)}"
    else:
        ended = f"ended with exit code {outcome.exit_code} before the function returned"
    text = f"rank {outcome.rank} on worker {worker} {ended}"
    text += f" (after {restarts} restart{'s' * (restarts != 1)})" if restarts else ""
    shown = set(trace.splitlines())
    tail = "\n".join(line for line in outcome.tail.splitlines() if line not in shown)
    text += f"\n{trace.rstrip()}" if trace else ""
    text += f"\nlast lines of its output:\n{tail}" if tail else ""
    error = GangFailed(
        text,
        rank=outcome.rank,
        worker=worker,
        exit_code=outcome.exit_code,
        traceback=trace,
        log_tail=outcome.tail,
        restarts=restarts,
    )
    if has_mark:
        mark_permanent(error)
    return error, cause


def _read_exception(outcome: RankOutcome) -> tuple[str, str, BaseException | None, bool]:
    """Return first line, traceback, object and mark of the exception that a function raised."""
    if outcome.answer[:1] != b"E":
        return "", "", None, False
    summary, trace, pickled, has_mark = pickle.loads(outcome.answer[1:])  # noqa: S301 - from own workers
    try:
        cause = pickle.loads(pickled) if pickled else None  # noqa: S301 - from own workers
    except Exception:  # noqa: BLE001 - its class may exist on the workers only
        cause = None
    if not isinstance(cause, BaseException):
        return summary, trace, None, has_mark
    # Python would print the traceback of the cause, too, if tblib has pickled it.
    return summary, trace, cause.with_traceback(None), has_mark


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
