"""Data that is larger than the memory of a cluster gets through, and no worker is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from scale import FULL

ROOT = Path(__file__).parents[2]


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not FULL, reason="gigabytes of data: at full scale")
@pytest.mark.parametrize(
    ("job", "size_mb", "partition_mb"),
    [
        ("sum", 8000, 64),
        ("group_few", 8000, 64),
        ("merge", 2000, 32),
        ("rechunk", 2000, 32),
        ("set_index", 800, 64),
    ],
)
def test_no_worker_is_lost_and_the_result_is_right(
    job: str, size_mb: int, partition_mb: int
) -> None:
    command = ["-m", "benchmarks.admission", "--one", job, "hyperplane", size_mb, partition_mb]
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    figures = json.loads(done.stdout.splitlines()[-1])
    assert (figures["outcome"], figures["lost"]) == ("ok", 0), (figures, done.stderr[-2000:])
