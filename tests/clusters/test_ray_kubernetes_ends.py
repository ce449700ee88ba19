"""Forks, ends and failures of clusters of ``ray:kubernetes`` on a small API server."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from kuberay_cases import plan
from kuberay_pods import OPTIONS, Operator, configured, operator, server, start
from kubernetes_server import NAMESPACE, ApiServer

from hyperplane import ray_common as rc
from hyperplane.clusters import records
from hyperplane.clusters.ray.cluster import OwnedRayCluster
from hyperplane.clusters.ray.kubernetes import engine as engine_module
from hyperplane.clusters.ray.kubernetes.engine import KubernetesRayEngine
from hyperplane.errors import EngineError

FORKING = f"""
import os, sys, time
import hyperplane
from hyperplane.clusters.ray.kubernetes.engine import KubernetesRayEngine

plan = hyperplane.plan_cluster(
    1, nprocs=1, engine="ray:kubernetes", name="flights", engine_options={OPTIONS}
)
client, cluster = KubernetesRayEngine().start(plan)

def refused(call):
    try:
        call()
    except hyperplane.EngineError as error:
        print("refused" if "was forked from process" in str(error) else error)
    else:
        print("not refused")

def child():
    refused(lambda: cluster.status)
    refused(lambda: cluster.workers)
    refused(lambda: client.ray)
    refused(cluster.close)
    refused(cluster.detach)
    attached = KubernetesRayEngine().connect("flights", plan.settings).cluster
    print(attached is cluster, attached.workers == before)
    attached.detach()

before = cluster.workers
sys.stdout.flush()
pid = os.fork()
if not pid:
    child()
    sys.exit(0)
deadline = time.monotonic() + 60
while os.waitpid(pid, os.WNOHANG) == (0, 0):
    if time.monotonic() > deadline:
        os.kill(pid, 9)
        sys.exit("the child hangs")
    time.sleep(0.05)
print(cluster.status, len(cluster.workers))
"""

__all__ = ["configured", "operator", "server"]  # fixtures


def end_by_itself(server: ApiServer) -> None:
    """Delete the cluster as the time limit of its finished Job does."""
    server.respond("DELETE", f"/namespaces/{NAMESPACE}/jobs/flights-idle", b"")
    assert server.objects == {}


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="for systems that can fork")
def test_a_forked_child_is_refused_attaches_and_ends(server: ApiServer, operator: Operator) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=200
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["refused"] * 5 + ["False True", "running 1"]
    assert server.objects == {}  # the parent has closed it at its exit


@pytest.mark.slow
def test_a_cluster_that_has_ended_is_not_found(
    server: ApiServer,
    operator: Operator,
    configured: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(engine_module, "is_installed", lambda name: True)
    before = os.environ.get("RAY_ADDRESS")
    _, first = start()
    end_by_itself(server)
    with pytest.raises(EngineError, match="no Ray cluster is running"):
        rc.get_ray_cluster(extra_workers=1)
    assert records.read_all() == []
    assert os.environ.get("RAY_ADDRESS") == before
    assert OwnedRayCluster.running == {}
    _, second = start()
    end_by_itself(server)
    assert rc.find_ray_workers() == []
    third = rc.initialize_ray_cluster(1, 4, 8, use_existing=True)
    assert third not in (first, second)
    assert len(third.workers) == 1
    third.close()


@pytest.mark.slow
def test_the_record_of_another_program_whose_cluster_has_ended_is_skipped(
    server: ApiServer, operator: Operator, configured: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "is_installed", lambda name: True)
    _, cluster = start()
    monkeypatch.setattr(OwnedRayCluster, "running", {})  # as in another program
    end_by_itself(server)
    assert rc.find_ray_workers() == []
    with pytest.raises(EngineError, match="no Ray cluster is running"):
        rc.get_ray_cluster()
    assert [record.name for record in records.read_all()] == ["flights"]
    fresh = rc.initialize_ray_cluster(1, 4, 8, use_existing=True)
    assert fresh is not cluster
    fresh.close()
    cluster.close()


def test_a_program_attaches_once_while_the_cluster_runs(
    server: ApiServer, operator: Operator
) -> None:
    _, own = start()
    own.detach()  # as if its process had been killed
    settings: Any = plan(OPTIONS).settings
    first = KubernetesRayEngine().connect("flights", settings).cluster
    assert KubernetesRayEngine().connect("flights", settings).cluster is first
    first.detach()
    second = KubernetesRayEngine().connect("flights", settings).cluster
    assert second is not first
    end_by_itself(server)
    with pytest.raises(EngineError, match="no cluster 'flights'"):
        KubernetesRayEngine().connect("flights", settings)
    assert second.status == "closed"


def test_an_older_object_does_not_remove_a_newer_one(
    server: ApiServer, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first = start()
    newer = object()
    monkeypatch.setitem(OwnedRayCluster.running, "flights", newer)
    first.close()
    assert OwnedRayCluster.running["flights"] is newer


def test_closing_without_an_api_server_names_the_command(
    server: ApiServer, operator: Operator
) -> None:
    _, cluster = start()
    server.refusals["DELETE", "rayclusters"] = [403] * 5
    with pytest.raises(
        EngineError, match=f"kubectl delete raycluster flights -n {NAMESPACE}'.*refused with 403"
    ):
        cluster.close()
    assert cluster.status == "closed"
    assert server.names("rayclusters") == ["flights"]
