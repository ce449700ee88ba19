"""Retry and Catch: which clause an error fits, and how long to wait."""

from __future__ import annotations

import random
from typing import Any

from hyperplane.asl.errors import StateError
from hyperplane.asl.field_types import TOO_MUCH

RUNTIME = "States.Runtime"
TIMEOUT = "States.Timeout"


def matches(names: list[str], error: StateError, *, branches: bool) -> bool:
    """Whether a clause names an error.

    Parameters
    ----------
    names : list of str
        Its ``ErrorEquals``.
    error : StateError
        What happened.
    branches : bool
        Whether it happened in a branch of this state, which is ``States.BranchFailed`` too.

    Examples
    --------
    >>> matches(["States.TaskFailed"], StateError("OSError", ""), branches=False)
    True
    >>> matches(["States.TaskFailed"], StateError("States.Timeout", ""), branches=False)
    False
    """
    if error.name in names:
        return True
    if error.name == RUNTIME:
        return False
    return (
        "States.ALL" in names
        or ("States.TaskFailed" in names and error.name != TIMEOUT)
        or ("States.BranchFailed" in names and branches)
    )


class Retries:
    """The attempts of one state, from when it is entered until it is left."""

    def __init__(self, retriers: list[dict[str, Any]]) -> None:
        self._retriers = retriers
        self._used = [0] * len(retriers)
        self.count = 0

    def delay(self, error: StateError, *, branches: bool) -> float | None:
        """Seconds until the next attempt; None when there is none."""
        if error.name == RUNTIME:
            return None
        for number, retrier in enumerate(self._retriers):
            if not matches(retrier["ErrorEquals"], error, branches=branches):
                continue
            used = self._used[number]
            if used >= retrier.get("MaxAttempts", 3):
                return None
            self._used[number] += 1
            self.count += 1
            return _seconds(retrier, used)
        return None


def _seconds(retrier: dict[str, Any], used: int) -> float:
    longest = float(retrier.get("MaxDelaySeconds", TOO_MUCH))
    try:
        seconds = retrier.get("IntervalSeconds", 1) * float(retrier.get("BackoffRate", 2.0)) ** used
    except OverflowError:
        seconds = longest
    seconds = min(seconds, longest)
    if retrier.get("JitterStrategy") == "FULL":
        seconds = random.uniform(0, seconds)  # noqa: S311
    return float(seconds)


def catcher(
    catchers: list[dict[str, Any]], error: StateError, *, branches: bool
) -> dict[str, Any] | None:
    """The first clause of a Catch that names an error."""
    fits = (one for one in catchers if matches(one["ErrorEquals"], error, branches=branches))
    return next(fits, None)
