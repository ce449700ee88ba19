"""Steps with a Ray cluster as batch jobs of a real Slurm: submitted, cancelled and rendered."""

from __future__ import annotations

import os
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from job_cases import wait_until
from scale import FULL
from services_slurm import slurm

from hyperplane.jobs import Pipeline, Resources, Step, submit
from hyperplane.jobs.exporters.registry import render
from hyperplane.jobs.job_control import new_job

pytestmark = [pytest.mark.ray, pytest.mark.cluster, pytest.mark.slow]

PROGRAM = """
import os, pathlib, time
import ray

ray.init(logging_level="ERROR", log_to_driver=False)
square = ray.remote(lambda number: number**2)
pathlib.Path("address").write_text(os.environ["RAY_ADDRESS"])
print("job", os.environ["SLURM_JOB_ID"], "sum", sum(ray.get([square.remote(n) for n in range(9)])))
time.sleep(float(os.environ.get("LINGER", "0")))
"""
CLUSTER: dict[str, Any] = {
    "framework": "ray", "engine": "local", "num_workers": 1, "nprocs": 1, "nthreads": 1,
    "ram_gb_per_proc": 0.5, "engine_options": {"dashboard": False},
    "name": f"of-a-batch-job-{uuid.uuid4().hex[:8]}",
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _slurm() -> Iterator[None]:
    with slurm():
        yield


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A short temporary directory of the step, which is empty in the end, like the machine."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "squares.py").write_text(PROGRAM)
    with tempfile.TemporaryDirectory(prefix="hp-", dir="/tmp") as folder:
        yield folder
        wait_until(lambda: not find_nodes())
        wait_until(lambda: not [file for _, _, files in os.walk(folder) for file in files])


def find_nodes() -> list[int]:
    start = f"{CLUSTER['name']} "
    return [
        process.pid
        for process in psutil.process_iter(["environ"])
        if (process.info["environ"] or {}).get("HYPERPLANE_LOCAL_CLUSTER", "").startswith(start)
    ]


def make_pipeline(temporary: str, **variables: str) -> Pipeline:
    step = Step(
        name="squares", kind="python", path="squares.py", cluster=CLUSTER,
        env={"TMPDIR": temporary, **variables}, resources=Resources(cores=1, ram_gb=4),
    )  # fmt: skip
    return Pipeline.from_steps("test", [step])


def test_a_batch_job_has_the_cluster_of_its_step(temporary: str) -> None:
    job = submit(make_pipeline(temporary), runner="slurm", max_retries=0)
    assert job.wait(280) == "done", job.logs()
    log = job.logs()
    assert "starting the head node and 1 worker node of Ray on this machine" in log
    assert "sum 204" in log


@pytest.mark.skipif(not FULL, reason="the cluster ends as in the test above: at full scale")
def test_a_cancelled_batch_job_ends_its_cluster(temporary: str, tmp_path: Path) -> None:
    job = submit(make_pipeline(temporary, LINGER="600"), runner="slurm", max_retries=0)
    wait_until((tmp_path / "address").exists, 280)
    assert find_nodes()
    job.cancel()
    assert job.wait(120) == "cancelled"


@pytest.mark.skipif(not FULL, reason="test_ray_requests.py reads the script: at full scale")
def test_a_rendered_script_starts_the_cluster(temporary: str, tmp_path: Path) -> None:
    out = tmp_path / "rendered"
    out.mkdir()
    for document in render("slurm", new_job(make_pipeline(temporary))):
        (out / document.name).write_text(document.text)
    (out / "logs").mkdir()
    ran = subprocess.run(
        ["sbatch", "--wait", "000-squares.sbatch"], cwd=out, timeout=280, check=False
    )
    [log] = (out / "logs").iterdir()
    assert ran.returncode == 0, log.read_text()
    assert "sum 204" in log.read_text()
