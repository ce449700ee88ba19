"""Dask's own tests pass on a cluster of this package where they pass on a plain LocalCluster."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from scale import scaled

SCRIPT = Path(__file__).parents[2] / "scripts" / "compat" / "run_suites.py"
#: Suites, each how-manieth of their tests runs, and the least number that has to pass.
SMALL = [(["slice"], 4, 20)]
LARGE = [(["array", "bag", "dataframe"], 25, 400)]


@pytest.mark.cluster
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("suites", "every", "least"), scaled(SMALL, LARGE))
def test_tests_of_dask_pass_as_on_a_plain_cluster(
    suites: list[str], every: int, least: int
) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *suites, "--every", str(every)],
        capture_output=True,
        text=True,
        check=False,
    )
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.findall(r"ran, (\d+) passed, 0 failed", done.stdout)
    assert len(passed) == len(suites)
    assert sum(map(int, passed)) >= least
