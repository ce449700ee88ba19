"""Retriers and Catchers: which one matches an error, and the delay before a retry."""

from __future__ import annotations

import random
from typing import Any

from hyperplane.asl.errors import RUNTIME, TIMEOUT, StateError
from hyperplane.asl.field_types import EXCLUSIVE_MAXIMUM


def matches_error(names: list[str], error: StateError, *, in_branch: bool) -> bool:
    """Whether the ``ErrorEquals`` of a clause matches an error.

    ``in_branch`` is whether the error comes from a branch of a Parallel state;
    ``States.BranchFailed`` matches such errors.

    Examples
    --------
    >>> matches_error(["States.TaskFailed"], StateError("OSError", ""), in_branch=False)
    True
    >>> matches_error(["States.TaskFailed"], StateError("States.Timeout", ""), in_branch=False)
    False
    """
    if error.name in names:
        return True
    if error.name == RUNTIME:
        return False
    return (
        "States.ALL" in names
        or ("States.TaskFailed" in names and error.name != TIMEOUT)
        or ("States.BranchFailed" in names and in_branch)
    )


class RetryCounter:
    """Counts the retries of one visit to a state."""

    def __init__(self, retriers: list[dict[str, Any]]) -> None:
        self._retriers = retriers
        self._used = [0] * len(retriers)
        self.count = 0

    def next_delay(self, error: StateError, *, in_branch: bool) -> float | None:
        """Return the seconds until the next attempt; None if the error is not retried."""
        if error.name == RUNTIME:
            return None
        for number, retrier in enumerate(self._retriers):
            if not matches_error(retrier["ErrorEquals"], error, in_branch=in_branch):
                continue
            used = self._used[number]
            if used >= retrier.get("MaxAttempts", 3):
                return None
            self._used[number] += 1
            self.count += 1
            return _backoff_seconds(retrier, used)
        return None


def _backoff_seconds(retrier: dict[str, Any], used: int) -> float:
    longest = float(retrier.get("MaxDelaySeconds", EXCLUSIVE_MAXIMUM))
    try:
        seconds = retrier.get("IntervalSeconds", 1) * float(retrier.get("BackoffRate", 2.0)) ** used
    except OverflowError:
        seconds = longest
    seconds = min(seconds, longest)
    if retrier.get("JitterStrategy") == "FULL":
        seconds = random.uniform(0, seconds)  # noqa: S311
    return float(seconds)


def find_catcher(
    catchers: list[dict[str, Any]], error: StateError, *, in_branch: bool
) -> dict[str, Any] | None:
    """Return the first Catcher that matches an error; None if none does."""
    matching = (
        clause
        for clause in catchers
        if matches_error(clause["ErrorEquals"], error, in_branch=in_branch)
    )
    return next(matching, None)
