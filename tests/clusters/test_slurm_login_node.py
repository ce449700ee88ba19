"""Checks before a start on Slurm, of which a machine without the nodes' Python knows little."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import hyperplane
from hyperplane.clusters.dask.slurm import preflight
from hyperplane.guard.preflight.check_deadline import CheckDeadline
from hyperplane.guard.preflight.request import PreflightRequest

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("program", "mode"),
    [
        ("#!/bin/sh\necho only on nodes >&2\nexit 1\n", 0o755),
        ("#!/bin/sh\n", 0o644),
        ("no program", 0o755),
    ],
)
def test_python_that_runs_on_the_nodes_only_is_a_warning(
    program: str, mode: int, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text(program)
    python.chmod(mode)
    plan = hyperplane.plan_cluster(
        engine="slurm",
        engine_options={"python": str(python), "shared_folder": str(tmp_path / "shared")},
        num_workers=1,
        ram_gb_per_proc=0.5,
    )
    [check] = [
        check
        for check in preflight.list_checks(plan, PreflightRequest())
        if check.subject == "python"
    ]
    [finding] = check.run(CheckDeadline(time.monotonic() + 60))
    assert finding.state == "warning"
    assert "on this machine" in finding.text
