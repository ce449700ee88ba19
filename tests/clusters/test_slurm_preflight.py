"""Checks before a start with a real Slurm: it judges the options of a job, and runs none."""

from __future__ import annotations

from typing import Any

import pytest
from services_slurm import SMALL, queue, service, shared, surroundings

import hyperplane

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.usefixtures("patient_checks"),
]
__all__ = ["service", "shared", "surroundings"]  # fixtures


def _report(settings: dict[str, Any] | None = None, **arguments: Any) -> Any:
    plan = hyperplane.plan_cluster(
        engine="slurm", engine_options=settings or {}, **{**SMALL, **arguments}
    )
    return hyperplane.preflight(plan)


def test_slurm_accepts_a_job_without_running_it(surroundings: None) -> None:
    report = _report()
    assert report.faults == (), str(report)
    assert "Slurm accepts the options of the jobs" in str(report)
    assert queue() == {}


@pytest.mark.parametrize(
    ("settings", "arguments", "text"),
    [
        ({"partition": "no-such-partition"}, {}, "invalid partition"),
        ({}, {"ram_gb_per_proc": 20_000}, "not available"),
        ({}, {"cores_per_worker": 9000}, "not available"),
    ],
)
def test_slurm_refuses_a_job_that_could_never_run(
    surroundings: None, settings: Any, arguments: Any, text: str
) -> None:
    report = _report(settings, **arguments)
    [fault] = report.faults
    assert fault.subject == "job"
    assert text in fault.text
    assert queue() == {}
