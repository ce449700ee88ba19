"""A Slurm cluster for the tests of its engine, with this machine as its only node."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask.config
import pytest
from services import SCRIPTS, Slot, is_empty, need, slot, until

import hyperplane

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")


def _environment(found: Slot) -> dict[str, str]:
    folder = str(found.folder)
    return {"HYPERPLANE_ENGINES": folder, "SLURM_CONF": f"{folder}/slurm/slurm.conf"}


def interface_of(found: Slot) -> str:
    """Name of the network interface that the tests of a Slurm may add to this machine."""
    return f"hpslurm{found.number}"


def _clean(found: Slot) -> None:
    environment = {**os.environ, **_environment(found)}
    down = [SCRIPTS / "slurm_down"]
    subprocess.run(down, env=environment, check=True, timeout=90, start_new_session=True)
    left = ["ip", "link", "del", interface_of(found)]
    subprocess.run(left, capture_output=True, check=False)


@contextmanager
def slurm() -> Iterator[Slot]:
    """Run Slurm during the block; its commands find it."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    there = all(shutil.which(name, path=path) for name in PROGRAMS)
    need("no slurm-wlm, munge or root for a Slurm", there and os.getuid() == 0)
    with slot("slurm", _clean) as mine, pytest.MonkeyPatch.context() as patch:
        for name, text in _environment(mine).items():
            patch.setenv(name, text)
        up = [SCRIPTS / "slurm_up"]
        done = subprocess.run(up, capture_output=True, text=True, check=False, timeout=180)
        need(f"Slurm does not come up: {done.stderr}", done.returncode == 0)
        yield mine


SMALL: dict[str, Any] = {
    "num_workers": 2,
    "nprocs": 1,
    "nthreads": 1,
    "cores_per_worker": 1,
    "ram_gb_per_proc": 0.5,
    "timeout": 120,
}


@pytest.fixture(scope="module")
def service() -> Iterator[Slot]:
    with slurm() as running:
        yield running
        until(lambda: queue() == {})


@pytest.fixture(scope="module")
def surroundings(service: Slot, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Apply the settings of the engine that several tests share."""
    folder = tmp_path_factory.mktemp("shared")
    with settings(folder):
        yield
    until(lambda: is_empty(folder))


@contextmanager
def settings(folder: Path) -> Iterator[None]:
    """Settings of the engine, with a folder for key pairs."""
    given = {"interface": "lo", "shared_folder": str(folder)}
    with dask.config.set({f"hyperplane.engines.slurm.{k}": v for k, v in given.items()}):
        yield


@pytest.fixture(autouse=True)
def shared(service: Slot, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """The folder for key pairs; checks that it and the queue are empty after a test."""
    folder, before = tmp_path / "shared", set(queue())
    with settings(folder):
        yield folder
    # The jobs of a shared cluster end after its last test.
    kept = set(queue()) if "one_cluster" in request.fixturenames else before
    until(lambda: set(queue()) <= kept and is_empty(folder))


def start(**options: Any) -> Any:
    return hyperplane.start(hyperplane.plan_cluster(**{"engine": "slurm", **SMALL, **options}))


def queue(state: str = "all") -> dict[str, str]:
    """Return pending, running and completing jobs with their states."""
    words = ["squeue", "--noheader", "--states=PENDING,RUNNING,COMPLETING", "--format=%i %T"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    listed = dict(line.split() for line in done.stdout.splitlines())
    return {job: found for job, found in listed.items() if state in {"all", found}}


def read_job_details(job: str) -> dict[str, str]:
    """Return what Slurm knows about a job."""
    words = ["scontrol", "--oneliner", "show", "job", job]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return dict(word.partition("=")[::2] for word in done.stdout.split())
