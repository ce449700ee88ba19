"""What a call that waits for a job shows, and its time limit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from numbers import Real
from typing import Any, cast

from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.units import in_seconds, is_boolean
from hyperplane.core.wait_display import WaitStatus
from hyperplane.jobs.job_progress import WAITING, StepProgress
from hyperplane.jobs.store.job_records import DONE, IN_PROGRESS, Job

#: Maximum timeout in seconds, about thirty years.
_MAX_TIMEOUT = 1e9
#: Most running steps that are named.
_MOST_NAMED = 2
#: Statuses after a number, where they differ from those of one step.
_WORDS = {WAITING: "waiting"}


def describe_wait(job: Job, states: Sequence[StepProgress]) -> WaitStatus:
    """Return what a job that has not ended waits for."""
    counts = Counter(state.status for state in states)
    running = [state for state in states if state.status == IN_PROGRESS]
    others = [f"{count} {_WORDS.get(status, status)}" for status, count in counts.items()
              if status not in (DONE, IN_PROGRESS)]  # fmt: skip
    named = [f"{state.name} ({state.detail})" if state.detail else state.name
             for state in running[:_MOST_NAMED]]  # fmt: skip
    if len(running) > _MOST_NAMED:
        named.append(f"{len(running) - _MOST_NAMED} more")
    is_starting = not running and not counts[DONE]
    parts = [job.status] if is_starting else []
    parts += [f"running: {', '.join(named)}"] if named else []
    return WaitStatus(
        subject=f"job {job.run_name}",
        unit="steps done",
        done=counts[DONE],
        total=len(states),
        detail="; ".join([*parts, ", ".join(others)] if others else parts),
    )


def parse_timeout(timeout: Any) -> float | None:
    """Return a timeout in seconds, or None for no limit."""
    seconds = in_seconds(timeout)
    is_number = isinstance(seconds, Real) and not is_boolean(seconds)
    # Negative timeouts are accepted: programs compute the time left by subtraction.
    if seconds is None or (is_number and (abs(seconds) < _MAX_TIMEOUT or seconds == math.inf)):
        return cast("float | None", seconds)
    allowed = f"fewer than {_MAX_TIMEOUT:g} seconds, text such as '10 min', or None for no limit"
    raise RequestError([Fault("timeout", repr(timeout)[:80], allowed)])
