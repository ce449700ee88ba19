"""Processes of a node of Ray end with it, also those that they start at that moment."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

PROGRAM = """
import subprocess, time
import psutil
from hyperplane.clusters.local_nodes.node_program import adopt_descendants
from hyperplane.clusters.ray.node_processes import kill_descendants

adopt_descendants()
loop = "while :; do sleep 600 & sleep 0.01; done"
shells = [subprocess.Popen(["sh", "-c", loop]) for _ in range(3)]
while len(found := psutil.Process().children(recursive=True)) < 30:
    time.sleep(0.05)
kill_descendants()
print(psutil.Process().children(recursive=True), *(each.pid for each in found))
"""


@pytest.mark.process
def test_processes_that_start_meanwhile_are_killed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=250, check=True
    )
    left, *pids = done.stdout.split()
    assert left == "[]"
    assert len(pids) >= 30
    assert not any(psutil.pid_exists(int(pid)) for pid in pids)
