"""Errors of a start: which one is the time limit of the start, and what caused another one."""

from __future__ import annotations

import time

import pytest

import hyperplane
from hyperplane.clusters.dask.start_errors import describe_cause, find_causes, is_start_timeout


@pytest.fixture(scope="module")
def plan() -> hyperplane.ClusterPlan:
    return hyperplane.plan_cluster(
        num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5, timeout=20
    )


def _raised(cause: Exception) -> Exception:
    """A RuntimeError with a cause, as Dask raises it when a server does not start."""
    try:
        raise RuntimeError("Nanny failed to start.") from cause
    except RuntimeError as error:
        return error


def test_a_timeout_error_is_the_limit_only_after_the_limit(plan: hyperplane.ClusterPlan) -> None:
    now = time.monotonic()
    error = _raised(TimeoutError())
    assert is_start_timeout(error, plan, now - 21)
    assert not is_start_timeout(error, plan, now - 5)
    assert not is_start_timeout(_raised(OSError("disk full")), plan, now - 21)


def test_the_first_cause_is_described(plan: hyperplane.ClusterPlan) -> None:
    error = _raised(_raised(OSError("disk full")))
    assert [str(one) for one in find_causes(error)][1:] == ["Nanny failed to start.", "disk full"]
    assert describe_cause(error, plan) == "disk full"
    assert describe_cause(_raised(KeyError()), plan) == "KeyError"


def test_another_timeout_error_is_described_as_such(plan: hyperplane.ClusterPlan) -> None:
    text = describe_cause(_raised(TimeoutError("no license")), plan)
    assert text.startswith("no license (a TimeoutError of a preload or of the system")
    assert "time limit of 20 s" in text
    assert describe_cause(_raised(TimeoutError()), plan).startswith("TimeoutError (")
