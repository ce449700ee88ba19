"""Dask's own tests pass on a cluster of this package where they pass on a plain LocalCluster."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scale import FULL

SCRIPT = Path(__file__).parents[2] / "scripts" / "compat" / "run_suites.py"
RUNNER = runpy.run_path(str(SCRIPT))
#: Suites, the n of which each n-th test runs, and the minimum number of passed tests.
SUITES, EVERY, PASSING = ["array", "bag", "dataframe"], 240, 60
#: Tests in the form of Dask's, one of which ends its process.
TESTS = """
import os, dask, pytest

@dask.delayed
def double(number):
    return 2 * number

def test_first():
    assert double(1).compute() == 2

def test_that_ends_the_process():
    os._exit(3)

def test_last():
    assert double(2).compute() == 4

def test_that_fails():
    assert double(3).compute() == 7
"""


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.skipif(not FULL, reason="starts a cluster for each suite: at full scale")
def test_tests_of_dask_pass_as_on_a_plain_cluster() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *SUITES, "--every", str(EVERY)],
        capture_output=True,
        text=True,
        check=False,
    )
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.findall(r"ran, (\d+) passed, 0 failed", done.stdout)
    assert len(passed) == len(SUITES)
    assert sum(map(int, passed)) >= PASSING


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.skipif(not FULL, reason="starts four clusters: at full scale")
def test_a_test_that_ends_its_process_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(TESTS, encoding="utf-8")
    asked = RUNNER["Selection"](tmp_path, ["test_other.py"], 1)
    found = RUNNER["compare"](asked, tmp_path / "report.jsonl")
    too = RUNNER["PLAIN_TOO"]
    assert {name.partition("::test_")[2]: outcome for name, outcome in found.items()} == {
        "first": "passed",
        "that_ends_the_process": too,
        "last": "passed",
        "that_fails": too,
    }


def test_reports_of_a_killed_process_count(tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    assert RUNNER["read_report"](report) == {}
    lines = [["a::one", "begun"], ["a::one", "passed"], ["a::two", "begun"]]
    report.write_text("\n".join(map(json.dumps, lines)) + '\n["a::thr', encoding="utf-8")
    assert RUNNER["read_report"](report) == {"a::one": "passed", "a::two": "begun"}


def test_the_summary_names_what_failed_and_why_what_did_not_run() -> None:
    outcomes: dict[str, Any] = {
        "one": "passed",
        "two": "failed",
        "three": RUNNER["PLAIN_TOO"],
        "four": "excluded: starts its own cluster",
        "five": RUNNER["SECOND_TIME"],
    }
    assert RUNNER["summarize"]("bag", outcomes).splitlines() == [
        "bag: 4 ran, 1 passed, 1 failed, 1 failed on a plain LocalCluster too, "
        "1 passed only when run again, 1 excluded",
        "    1 excluded: starts its own cluster",
        "    failed: two",
        "    passed only when run again: five",
        "    failed on a plain LocalCluster too: three",
    ]
