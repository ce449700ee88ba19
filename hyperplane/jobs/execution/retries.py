"""Number of retries of failed attempts, and the delays before them.

``failure_kinds`` classifies failures, ``job_scheduler`` repeats attempts after failures that a
retry may avoid, and ``step_executor`` gives them more memory or smaller pieces. CONTRIBUTING.md,
*Change how a job is retried*, lists the defaults and the pages.
"""

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


def count_retries(step: Step, default: int) -> int:
    """Return the maximum number of retries of a step; ``default`` if the step sets none."""
    return default if step.retries is None else step.retries


def retry_delay(retry: int, settings: JobSettings) -> float:
    """Return the seconds before a retry, counted from 1: doubled each time, up to a maximum.

    Examples
    --------
    >>> [retry_delay(retry, JobSettings()) for retry in (1, 2, 3, 9)]
    [1.0, 2.0, 4.0, 60.0]
    """
    first = float(parse_seconds(settings.retry_wait))
    longest = float(parse_seconds(settings.retry_wait_most))
    return min(longest, first * BACKOFF_RATE ** (retry - 1))


def jitter(seconds: float) -> float:
    """Return a random delay between half of ``seconds`` and all of it.

    Jobs that failed together then do not retry together.
    """
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311
