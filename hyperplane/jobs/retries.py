"""How often failed attempts are retried, and after which delay."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from hyperplane.core.units import parse_seconds
from hyperplane.spec.settings import JobSettings

if TYPE_CHECKING:
    from hyperplane.jobs.definition.step import Step

#: Maximum restarts of an attempt whose process vanished without an exit code; such losses are not
#: failures of the step.
MAX_LOST_ATTEMPTS = 5
#: Factor from one delay to the next.
BACKOFF_RATE = 2.0


def count_retries(step: Step, usual: int) -> int:
    """Return the maximum number of retries of a step, ``usual`` if it states none."""
    return usual if step.retries is None else step.retries


def retry_delay(retry: int, settings: JobSettings) -> float:
    """Return the seconds before a retry, counted from 1: doubled each time, up to a maximum.

    Examples
    --------
    >>> [retry_delay(retry, JobSettings()) for retry in (1, 2, 3, 9)]
    [1.0, 2.0, 4.0, 60.0]
    """
    first = float(parse_seconds(settings.retry_wait))
    most = float(parse_seconds(settings.retry_wait_most))
    return min(most, first * BACKOFF_RATE ** (retry - 1))


def jitter(seconds: float) -> float:
    """Return a random half to all of a delay: jobs that failed together retry separately."""
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311
