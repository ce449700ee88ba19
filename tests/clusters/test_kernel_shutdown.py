"""Clusters close with the kernel of a notebook that does not close them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import nbformat
import psutil
import pytest
from kernels import execute

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

START = """
import os, hyperplane
sizes = dict(num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5, local_fit="exact")
client, cluster = hyperplane.initialize_cluster(**sizes)
other = hyperplane.start(hyperplane.plan_cluster(**sizes))
worker = client.submit(os.getpid).result()
"""


def test_the_shutdown_of_a_kernel_closes_its_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="t-") as place:  # paths of sockets have to be short
        monkeypatch.setenv("TMPDIR", place)
        cells = map(nbformat.v4.new_code_cell, [START, "print(worker, other.cluster.status.name)"])
        notebook = nbformat.v4.new_notebook(cells=list(cells))
        execute(notebook, Path(place))
        worker, status = notebook.cells[1].outputs[0].text.split()
        assert status == "running"
        assert not psutil.pid_exists(int(worker))
        left = [path for path in Path(place).rglob("*") if "hyperplane" in str(path)]
        assert [path for path in left if path.is_file() or path.is_socket()] == []
