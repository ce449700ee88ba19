"""Steps with a Ray cluster, which runs when the program starts and ends with the step."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from job_cases import bash, is_alive, run_job, submit_job, wait_until
from scale import FULL

from hyperplane.clusters.ray import driver_environment
from hyperplane.jobs import JobHandle, Step

pytestmark = [pytest.mark.ray, pytest.mark.cluster]

#: Seconds within which a cluster starts on a busy machine.
STARTED = 500
Submit = Callable[[Step], JobHandle]
CLUSTER: dict[str, Any] = {
    "framework": "ray",
    "num_workers": 1,
    "nprocs": 2,
    "nthreads": 1,
    "ram_gb_per_proc": 0.5,
    "local_fit": "exact",
    "engine_options": {"dashboard": False},
}
#: A plain program of Ray.
PROGRAM = """
import json, os, pathlib, psutil, time
import ray
from hyperplane import ray_common as rc

ray.init(log_to_driver=False)
assert rc.get_ray_cluster().address == os.environ["RAY_ADDRESS"]

@ray.remote(max_retries=5)
def square(number):
    time.sleep(0.3)
    return number**2

start = os.environ["CLUSTER"] + " "
raylets = [each.pid for each in psutil.process_iter() if each.name() == "raylet"
           and each.environ().get("HYPERPLANE_LOCAL_CLUSTER", "").startswith(start)]
pathlib.Path("seen.json").write_text(json.dumps({
    "address": os.environ["RAY_ADDRESS"], "raylets": raylets,
    "cores": ray.cluster_resources()["CPU"], "arguments": os.environ.get("HYPERPLANE_CLUSTER"),
}))
pathlib.Path("connected").touch()
found = [square.remote(number) for number in range(TASKS)]
ray.get(found[0])
pathlib.Path("running").touch()
assert ray.get(found) == [number**2 for number in range(TASKS)]
print("sum", sum(ray.get(found)))
"""


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The root of the pipelines, which is the current folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """A temporary directory of the step; in /tmp, because the path of a socket is limited."""
    with tempfile.TemporaryDirectory(prefix="hp-", dir="/tmp") as folder:
        yield folder


@pytest.fixture
def submit_and_end() -> Iterator[Submit]:
    """Submit a job of one step, which is cancelled at the end of a test that fails."""
    submitted: list[JobHandle] = []

    def call(step: Step) -> JobHandle:
        submitted.append(submit_job(step, max_retries=0))
        return submitted[-1]

    yield call
    for job in submitted:
        if not job.job.processed:
            job.cancel()
            job.wait(120)


def make_step(folder: Path, elsewhere: str, tasks: int, **options: Any) -> Step:
    (folder / "squares.py").write_text(PROGRAM.replace("TASKS", str(tasks)))
    variables = {"TMPDIR": elsewhere, "CLUSTER": "of-the-step"}
    return Step(
        name="squares",
        kind="python",
        path="squares.py",
        cluster={**CLUSTER, "name": "of-the-step"},
        env=variables,
        **options,
    )


def read_seen(folder: Path) -> Any:
    return json.loads((folder / "seen.json").read_text())


def nothing_is_left(seen: Any, elsewhere: str) -> None:
    wait_until(lambda: not any(map(is_alive, seen["raylets"])))
    wait_until(lambda: not [file for _, _, files in os.walk(elsewhere) for file in files])


def test_a_program_finds_the_cluster_running_while_a_worker_node_is_killed(
    tmp_path: Path, elsewhere: str, submit_and_end: Submit
) -> None:
    job = submit_and_end(make_step(tmp_path, elsewhere, 30))
    wait_until((tmp_path / "running").exists, STARTED)
    seen = read_seen(tmp_path)
    assert len(seen["raylets"]) == 3
    last = max(map(psutil.Process, seen["raylets"]), key=lambda each: each.create_time())
    last.kill()  # a worker node, with its tasks
    assert job.wait(280) == "done", job.logs()
    log = job.logs()
    assert f"sum {sum(number**2 for number in range(30))}" in log
    assert "starting the head node and 2 worker nodes of Ray on this machine" in log
    assert seen["cores"] == 2
    assert re.fullmatch(r"127\.0\.0\.1:\d+", seen["address"])
    assert seen["arguments"] is None
    # The token was in the environment of the step only.
    assert not {"RAY_AUTH_TOKEN", "RAY_ADDRESS"} & os.environ.keys()
    nothing_is_left(seen, elsewhere)


@pytest.mark.skipif(not FULL, reason="another test ends the step: at full scale")
def test_the_cluster_ends_with_a_cancelled_step(
    tmp_path: Path, elsewhere: str, submit_and_end: Submit
) -> None:
    job = submit_and_end(make_step(tmp_path, elsewhere, 2000))
    wait_until((tmp_path / "connected").exists, STARTED)
    seen = read_seen(tmp_path)
    job.cancel()
    assert job.wait(120) == "cancelled"
    nothing_is_left(seen, elsewhere)


@pytest.mark.skipif(not FULL, reason="test_ray_local.py kills a head node: at full scale")
def test_a_step_ends_with_its_cluster(
    tmp_path: Path, elsewhere: str, submit_and_end: Submit
) -> None:
    job = submit_and_end(make_step(tmp_path, elsewhere, 2000))
    wait_until((tmp_path / "connected").exists, STARTED)
    seen = read_seen(tmp_path)
    parent = psutil.Process(seen["raylets"][0]).parent()
    assert parent is not None
    next(each for each in parent.children() if each.name() == "gcs_server").kill()
    assert job.wait(150) == "failed"
    assert "the cluster of the step has ended: the head node has ended" in job.logs()
    nothing_is_left(seen, elsewhere)


def test_a_cluster_that_does_not_start_is_a_failure_of_the_step(elsewhere: str) -> None:
    cluster = {**CLUSTER, "timeout": 0.01}
    step = bash("late", "echo started", cluster=cluster, env={"TMPDIR": elsewhere})
    job = run_job(step, max_retries=0)
    assert job.status == "failed"
    assert "StartTimeout: engine ray:local: its head node has not started" in job.logs()
    assert "started\n" not in job.logs()
    assert [file for _, _, files in os.walk(elsewhere) for file in files] == []
    assert set(driver_environment.VARIABLES).isdisjoint(os.environ)
