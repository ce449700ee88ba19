"""Starts that fail on a real Kubernetes give the reason and leave nothing behind."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from services import until
from services_kubernetes import LONGEST, NAMESPACE, clusters, kubectl, left, service

import hyperplane
from hyperplane.clusters.dask.kubernetes.resource import DaskClusterResource

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.timeout(LONGEST),
    pytest.mark.filterwarnings("ignore:Kubernetes version:UserWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def _kubernetes() -> Iterator[None]:
    with service():
        yield


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    until(lambda: not clusters() and not left("deployments,services,secrets"))


def failure(options: dict[str, Any] | None = None, **arguments: Any) -> hyperplane.StartFailed:
    """Return the error of a start."""
    given = {"num_workers": 1, "nprocs": 1, "ram_gb_per_proc": 0.5, "timeout": 100, **arguments}
    given = {"cores_per_worker": 1, **given}
    with pytest.raises((hyperplane.StartFailed, hyperplane.StartTimeout)) as caught:
        hyperplane.start(
            hyperplane.plan_cluster(engine="kubernetes", engine_options=options, **given)
        )
    return caught.value


def test_an_image_that_is_not_there() -> None:
    began = time.monotonic()
    found = failure({"image": "test.invalid/hyperplane/none:1"})
    assert "ErrImageNeverPull" in str(found)
    assert "everything was closed again" in str(found)
    assert not isinstance(found, hyperplane.StartTimeout)
    assert time.monotonic() - began < 90


def test_an_image_of_root() -> None:
    found = str(failure({"run_as_user": 0}))
    assert "CreateContainerConfigError" in found
    assert "runAsNonRoot" in found or "run_as_non_root" in found or "root" in found


def test_a_worker_that_ends_as_it_starts() -> None:
    found = failure({"environ": ["DASK_DISTRIBUTED__WORKER__PRELOAD=no.such.module"]})
    assert "CrashLoopBackOff" in str(found)
    assert "No module named 'no'" in found.log_tail


def test_no_node_has_such_labels_or_so_much_room() -> None:
    found = failure(node_selector={"disk": "none"}, timeout=50)
    assert isinstance(found, hyperplane.StartTimeout)
    assert "0 of 1 worker process connected" in str(found)
    assert "node(s) didn't match" in str(found)
    found = failure(cores_per_worker=94, nthreads=90, options={"cpu_reserved": 1}, timeout=50)
    assert "Insufficient cpu" in str(found)


def test_a_quota_that_is_too_small() -> None:
    kubectl("-n", NAMESPACE, "create", "quota", "few", "--hard=limits.memory=800Mi")
    try:
        found = failure()
        assert "nothing was started: the pods need limits.memory" in str(found)
        assert "quota few permits 800Mi" in str(found)
    finally:
        kubectl("-n", NAMESPACE, "delete", "quota", "few")


def test_a_quota_that_is_used_up_by_the_scheduler() -> None:
    # The checks before a start do not read such a number.
    kubectl("-n", NAMESPACE, "create", "quota", "few", "--hard=count/pods=1")
    try:
        found = failure(timeout=50)
        assert isinstance(found, hyperplane.StartTimeout)
        assert "exceeded quota: few" in str(found)
    finally:
        kubectl("-n", NAMESPACE, "delete", "quota", "few")


def test_a_right_that_is_missing() -> None:
    found = str(failure({"namespace": "default"}))
    assert "not allowed to create daskclusters in namespace 'default'" in found
    assert "rbac.yaml" in found
    with pytest.raises(hyperplane.EngineError, match="has no cluster 'none'; running: none"):
        hyperplane.get_cluster("none", "kubernetes")


def test_a_name_that_is_taken() -> None:
    pod = {"spec": {"containers": [{"name": "x", "image": "y"}]}}
    taken = {
        "apiVersion": "kubernetes.dask.org/v1",
        "kind": "DaskCluster",
        "metadata": {"name": "taken"},
        "spec": {"worker": pod, "scheduler": {**pod, "service": {"ports": []}}},
    }
    kubectl("-n", "dask-operator", "scale", "deployment/operator", "--replicas=0")
    try:
        kubectl("-n", NAMESPACE, "create", "-f", "-", text=json.dumps(taken))
        assert "the name is already in use" in str(failure(name="taken"))
        assert clusters() == ["daskcluster.kubernetes.dask.org/taken"], "it is not ours to delete"
    finally:
        kubectl("-n", NAMESPACE, "delete", "daskcluster", "taken", "--ignore-not-found")
        _operator_again()


def test_an_operator_that_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DaskClusterResource, "operator_seconds", 3.0)
    kubectl("-n", "dask-operator", "scale", "deployment/operator", "--replicas=0")
    kubectl("-n", "dask-operator", "wait", "--for=delete", "pod", "-l", "app=operator")
    try:
        found = str(failure())
        assert "the operator of dask-kubernetes did not react to the cluster within 3 s" in found
    finally:
        _operator_again()


def _operator_again() -> None:
    kubectl("-n", "dask-operator", "scale", "deployment/operator", "--replicas=1")
    kubectl("-n", "dask-operator", "rollout", "status", "deployment/operator", "--timeout=60s")
