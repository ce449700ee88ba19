"""The program on hosts of the ssh engine, by its name and by that of version 0.1.0."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hyperplane.clusters.dask.ssh.nodes import PROGRAM

#: What a cluster of version 0.1.0 sends to the host of one more node.
OF_NODE = {
    "role": "worker",
    "scheduler": "tcp://127.0.0.1:1",
    "names": ["node-2"],
    "place": 0,
    "ngpus": 0,
    "ram": 10**18,
    "settings": {},
    "tls": {},
    "variables": {"MALLOC_TRIM_THRESHOLD_": "65536"},
    "options": {"interface": None, "preload": ["hyperplane.engines.parent_death"]},
}


@pytest.mark.process
@pytest.mark.parametrize("module", [PROGRAM, "hyperplane.engines.ssh.process"])
def test_the_program_reads_a_configuration_and_replies(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module],
        input=json.dumps(OF_NODE) + "\n",
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert json.loads(done.stdout)["fault"].startswith("its processes need 1000 PB together")
