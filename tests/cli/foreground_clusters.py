"""Helpers of tests of ``hyperplane cluster start``."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from dask_notices import without_notices
from terminal import Foreground

START = (
    *("cluster", "start", "--num-workers=1", "--nprocs=2", "--nthreads=1"),
    *("--ram-gb-per-proc=0.5", "--local-fit=exact"),
)


def wait_until(condition: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.02)


def ended_well(held: Foreground, place: Path) -> None:
    """Assert that the command ended with 0 and no output, and left nothing behind."""
    answer = held.end()
    assert without_notices(answer.err) == ""
    assert answer.code == 0
    wait_until(lambda: not held.family(), 120)  # a busy machine ends them one after the other
    assert list(place.rglob("*")) == []
