"""``hyperplane cluster`` with clusters of Ray: start, list, use from another process, and stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from foreground_clusters import START, ended_well, wait_until
from scale import FULL
from terminal import Begin, Run

from hyperplane.clusters import records

pytestmark = [pytest.mark.ray, pytest.mark.cluster]

RAY = (*START, "--framework=ray", "--engine-options=dashboard=false", "--name=held")
#: Connects in both ways, and runs tasks on the cluster that another process has started.
ATTACH = """
import json, os, sys
import hyperplane
from hyperplane import ray_common as rc

client, cluster = hyperplane.get_cluster(sys.argv[1])
ray = client.ray
square = ray.remote(lambda number: (number**2, os.getppid()))
numbers, parents = zip(*ray.get([square.remote(number) for number in range(5)]))
ray.shutdown()
same = rc.get_ray_cluster()
workers = rc.find_ray_workers()
ray.init(log_to_driver=False)
print(json.dumps({
    "numbers": numbers,
    "raylets": sorted(set(parents)),
    "addresses": [cluster.address, same.address, ray.get_runtime_context().gcs_address],
    "workers": [worker.name for worker in workers],
    "cores": ray.cluster_resources()["CPU"],
}))
ray.shutdown()
client.close()
assert "RAY_ADDRESS" not in os.environ
try:
    rc.get_ray_cluster(1)
except hyperplane.EngineError as error:
    assert "only the process that started held can add worker nodes" in str(error)
else:
    raise AssertionError("another process has added a worker node")
"""


def test_another_process_lists_uses_and_stops_a_cluster(
    begin: Begin, run: Run, place: Path
) -> None:
    held = begin(*RAY, "--json")
    started = json.loads(held.read_until("}"))
    assert (started["name"], started["engine"]) == ("held", "ray:local")
    assert (started["workers"], started["threads"], started["ram_gb"]) == (2, 2, 1.0)

    (listed,) = run("cluster", "list", "--json").json
    assert listed["pid"] == held.process.pid
    for key in ("name", "engine", "scheduler", "dashboard", "workers", "threads", "ram_gb"):
        assert listed[key] == started[key]
    (record,) = records.read_all()
    token = record.security["token"]
    assert token not in run("cluster", "list").out
    # No process has the token among its arguments, which all users can read.
    for process in [*psutil.Process(held.process.pid).children(recursive=True), held.process]:
        assert token not in " ".join(psutil.Process(process.pid).cmdline())

    done = subprocess.run(
        [sys.executable, "-c", ATTACH, "held"],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert token not in done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["numbers"] == [0, 1, 4, 9, 16]
    assert set(found["addresses"]) == {started["scheduler"]}
    assert found["workers"] == record.client["workers"]
    assert found["cores"] == 2
    # The tasks ran in the worker nodes, which the command in the other session has started.
    nodes = psutil.Process(record.client["program"]).children()
    assert set(found["raylets"]) <= {each.pid for each in nodes if each.name() == "raylet"}

    stopped = run("cluster", "stop", "held")
    assert (stopped.code, stopped.out, stopped.err) == (0, "held is closed\n", "")
    ended_well(held, place)
    assert run("cluster", "list", "--json").json == []


@pytest.mark.skipif(not FULL, reason="test_ray_local.py kills a head node: at full scale")
def test_the_command_says_that_the_head_has_ended(begin: Begin, place: Path) -> None:
    held = begin(*RAY)
    held.read_until("hyperplane cluster stop held")
    (record,) = records.read_all()
    program = psutil.Process(record.client["program"])
    every = [program, *program.children(recursive=True)]
    head = next(each for each in every if each.name() == "gcs_server")
    os.kill(head.pid, signal.SIGKILL)
    answer = held.end()
    assert (answer.code, answer.out) == (0, "held is closed: the head node has ended\n")
    wait_until(lambda: not any(process.is_running() for process in every), 60)
    assert list(place.rglob("*")) == []
