"""A Slurm for the tests of its engine: one node, this machine, started by the project's script."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask.config
import pytest
from services import need, until

import hyperplane

SCRIPTS = Path(__file__).parents[2] / "scripts" / "engines"
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")


@contextmanager
def slurm() -> Iterator[Path]:
    """The folder of a Slurm that runs as long as the block does; its programs find it."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    there = all(shutil.which(name, path=path) for name in PROGRAMS)
    need("no slurm-wlm, munge or root for a Slurm", there and os.getuid() == 0)
    # Not a folder of pytest: a socket's path may have a hundred characters.
    folder = tempfile.mkdtemp(prefix="hp-slurm-", dir="/tmp")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HYPERPLANE_ENGINES", folder)
        patch.setenv("SLURM_CONF", f"{folder}/slurm/slurm.conf")
        done = subprocess.run(
            [SCRIPTS / "slurm_up"], capture_output=True, text=True, check=False, timeout=90
        )
        try:
            need(f"Slurm does not come up: {done.stderr}", done.returncode == 0)
            yield Path(folder, "slurm")
        finally:
            subprocess.run([SCRIPTS / "slurm_down"], check=True, timeout=90)
            shutil.rmtree(folder)


SMALL: dict[str, Any] = {
    "num_workers": 2,
    "nprocs": 1,
    "nthreads": 1,
    "cores_per_worker": 1,
    "ram_gb_per_proc": 0.5,
    "timeout": 120,
}


@pytest.fixture(scope="module")
def service() -> Iterator[Path]:
    with slurm() as folder:
        yield folder


@pytest.fixture(autouse=True)
def shared(service: Path, tmp_path: Path) -> Iterator[Path]:
    """The folder for key pairs; empty when a test is over, as the queue is."""
    folder = tmp_path / "shared"
    settings = {"interface": "lo", "shared_folder": str(folder)}
    with dask.config.set({f"hyperplane.engines.slurm.{k}": v for k, v in settings.items()}):
        yield folder
    until(lambda: queue() == {} and not [*folder.rglob("*")], 20)


def start(**options: Any) -> Any:
    return hyperplane.start(hyperplane.plan_cluster(**{"engine": "slurm", **SMALL, **options}))


def queue(state: str = "all") -> dict[str, str]:
    """Jobs and their states: those that wait, run or are just ending."""
    words = ["squeue", "--noheader", "--states=PENDING,RUNNING,COMPLETING", "--format=%i %T"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    listed = dict(line.split() for line in done.stdout.splitlines())
    return {job: found for job, found in listed.items() if state in {"all", found}}


def told(job: str) -> dict[str, str]:
    """All that Slurm knows of a job."""
    words = ["scontrol", "--oneliner", "show", "job", job]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return dict(word.partition("=")[::2] for word in done.stdout.split())
