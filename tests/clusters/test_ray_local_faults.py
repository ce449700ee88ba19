"""The engine ``ray:local`` with a program that fails, in place of that with nodes of Ray."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from services import is_empty

import hyperplane
from hyperplane.clusters import records
from hyperplane.clusters.ray import driver_environment
from hyperplane.clusters.ray.client import RayClient
from hyperplane.clusters.ray.local import cluster as local_cluster
from hyperplane.clusters.ray.local.engine import LocalRayEngine
from hyperplane.errors import EngineError, StartFailed, StartTimeout

pytestmark = pytest.mark.cluster

#: Starts a head and one worker node, after lines such as libraries print.
PROGRAM = """
import json, sys
print("3", flush=True)
print('["event"]', flush=True)
started = 0
for line in sys.stdin:
    request = json.loads(line)
    if "folder" in request:
        print(json.dumps({"event": "head", "address": "127.0.0.1:1", "dashboard": ""}), flush=True)
        print(json.dumps({"event": "lost", "name": "another"}), flush=True)
    elif not started:
        started = 1
        print(json.dumps({"event": "worker", "name": request["worker"]}), flush=True)
"""


def make_plan(**others: Any) -> Any:
    return hyperplane.plan_cluster(
        engine="ray:local",
        num_workers=2,
        nprocs=1,
        nthreads=1,
        ram_gb_per_proc=0.3,
        **{"timeout": 3, **others},
    )


def test_a_timeout_counts_the_worker_nodes_after_unknown_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    monkeypatch.setattr(local_cluster, "_PROGRAM", str(program))
    with pytest.raises(StartTimeout, match="1 of 2 worker nodes have started in time"):
        LocalRayEngine().start(make_plan())
    assert records.read_all(starting=True) == []
    assert is_empty(Path(os.environ["TMPDIR"]))


def test_nothing_is_left_if_the_program_cannot_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*args: Any, **options: Any) -> Any:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", fail)
    with pytest.raises(StartFailed, match="Resource temporarily unavailable"):
        LocalRayEngine().start(make_plan())
    assert records.read_all(starting=True) == []
    assert is_empty(Path(os.environ["TMPDIR"]))


def test_a_client_of_a_closed_cluster_leaves_no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(address: str) -> None:
        raise ConnectionError(f"no cluster at {address}")

    ray = SimpleNamespace(is_initialized=lambda: False, init=refuse)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(driver_environment, "_read_again", lambda: None)
    before = {name: os.environ.get(name) for name in driver_environment.VARIABLES}
    driver_environment.set_variables("127.0.0.1:1", "secret")
    client = RayClient("ray:local", "127.0.0.1:1", "secret")
    with pytest.raises(EngineError, match="no cluster at"):
        _ = client.ray
    assert os.environ["RAY_ADDRESS"] == "127.0.0.1:1"  # it runs, as far as this process knows
    driver_environment.restore_variables("127.0.0.1:1")
    with pytest.raises(EngineError, match="no cluster at"):
        _ = client.ray
    assert {name: os.environ.get(name) for name in driver_environment.VARIABLES} == before
