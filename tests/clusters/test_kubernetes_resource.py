"""The DaskCluster resource on a small API server: its Secret, pods, logs, reasons and end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes_cases import rendered
from kubernetes_server import NAMESPACE, ApiServer, running_api_server

import hyperplane
from hyperplane.clusters.dask.kubernetes.resource import DaskClusterResource

TLS = {"ca_file": "authority", "cert": "certificate", "key": "private key"}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with running_api_server(tmp_path, monkeypatch) as found:
        yield found


def using(work: Callable[[DaskClusterResource], Awaitable[Any]], name: str = "flights") -> Any:
    """Return what a function returns for a connected resource."""

    async def main() -> Any:
        resource = DaskClusterResource(name, None)
        await resource.api.connect()
        try:
            return await work(resource)
        finally:
            await resource.api.close()

    return asyncio.run(main())


def add_pod(server: ApiServer, role: str, ready: bool = True, **status: Any) -> None:
    """Add a pod of the cluster, as the operator does."""
    name = f"flights-{role}"
    labels = {"dask.org/cluster-name": "flights", "dask.org/component": role}
    conditions = [{"type": "Ready", "status": "True"}] if ready else []
    container = {"name": role, "state": {"running": {}}, **status}
    server.objects["pods", name] = {
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": role, "resources": {"limits": {"memory": "7000000"}}}]},
        "status": {
            "phase": "Running",
            "conditions": conditions,
            "containerStatuses": [container],
        },
    }


def test_a_cluster_owns_its_secret_which_others_read(server: ApiServer) -> None:
    async def create(resource: DaskClusterResource) -> None:
        await resource.create(rendered(), TLS)
        assert resource.may_delete
        assert resource.api.namespace == NAMESPACE

    async def load(resource: DaskClusterResource) -> Any:
        await resource.load()
        return resource.security

    using(create)
    secret = server.objects["secrets", "flights-tls"]
    [owner] = secret["metadata"]["ownerReferences"]
    cluster = server.objects["daskclusters", "flights"]
    assert owner == {
        "apiVersion": "kubernetes.dask.org/v1",
        "kind": "DaskCluster",
        "name": "flights",
        "uid": cluster["metadata"]["uid"],
    }
    assert secret["metadata"]["labels"]["dask.org/cluster-name"] == "flights"
    assert "private key" not in str(server.objects)
    security = using(load)
    assert security.require_encryption
    assert security.tls_client_key == "private key"


def test_a_cluster_that_does_not_run_is_refused_with_those_that_do(server: ApiServer) -> None:
    using(lambda resource: resource.create(rendered(), {}))
    with pytest.raises(hyperplane.EngineError, match="no cluster 'other'; running: flights"):
        using(lambda resource: resource.load(), "other")


def test_an_api_server_without_the_operator_is_explained(server: ApiServer) -> None:
    server.refusals["POST", "daskclusters"] = [404]
    with pytest.raises(hyperplane.StartFailed, match=r"operator of dask-kubernetes is not install"):
        using(lambda resource: resource.create(rendered(), {}))


def test_a_scheduler_that_is_ready_is_not_waited_for(server: ApiServer) -> None:
    add_pod(server, "worker")
    add_pod(server, "scheduler")
    using(lambda resource: resource.wait_for_head(time.monotonic() + 60))


def test_a_scheduler_that_never_starts_is_a_failure_with_its_log(server: ApiServer) -> None:
    waiting = {"reason": "CrashLoopBackOff"}
    last = {"terminated": {"exitCode": 1, "reason": "Error"}}
    add_pod(server, "scheduler", ready=False, state={"waiting": waiting}, lastState=last)
    server.logs["flights-scheduler"] = b"Traceback:\n  File x\nKeyError: 'n\xc3\xa4me'\n"
    with pytest.raises(hyperplane.StartFailed, match="CrashLoopBackOff: it repeatedly") as caught:
        using(lambda resource: resource.wait_for_head(time.monotonic() + 60))
    assert caught.value.log_tail == "Traceback:\nKeyError: 'näme'"


@pytest.mark.parametrize(
    ("is_new", "outcome"),
    [(True, "everything was closed again"), (False, "the cluster was not closed")],
)
def test_the_error_of_a_scheduler_says_whether_the_cluster_was_closed(
    server: ApiServer, is_new: bool, outcome: str
) -> None:
    using(lambda resource: resource.create(rendered(), TLS))
    add_pod(server, "scheduler", ready=False, state={})

    async def wait(resource: DaskClusterResource, deadline: float) -> None:
        if is_new:
            for key in (("daskclusters", "flights"), ("secrets", "flights-tls")):
                server.objects.pop(key, None)
            await resource.create(rendered(), TLS)
        else:
            await resource.load()
        await resource.wait_for_head(deadline)

    with pytest.raises(hyperplane.StartTimeout, match=outcome):
        using(lambda resource: wait(resource, time.monotonic() - 1))
    add_pod(server, "scheduler", ready=False, state={"waiting": {"reason": "InvalidImageName"}})
    with pytest.raises(hyperplane.StartFailed, match=outcome):
        using(lambda resource: wait(resource, time.monotonic() + 60))


def test_advice_on_an_image_names_dask(server: ApiServer) -> None:
    waiting = {"reason": "RunContainerError", "message": "dask: not found"}
    add_pod(server, "worker", ready=False, state={"waiting": waiting})
    with pytest.raises(hyperplane.StartFailed, match="has Python, dask and distributed on its"):
        using(lambda resource: resource.explain_pending())


def test_a_start_that_takes_too_long_has_the_warnings_of_its_pods(server: ApiServer) -> None:
    add_pod(server, "scheduler", ready=False, state={})
    for name, message in (("flights-scheduler", "Insufficient cpu"), ("other", "Insufficient gpu")):
        about = {"kind": "Pod", "name": name}
        event = {"involvedObject": about, "reason": "FailedScheduling", "message": message}
        server.objects["events", name] = {"metadata": {"name": name}, **event}
    with pytest.raises(
        hyperplane.StartTimeout, match=r"within 0 s \(timeout\).*Insufficient cpu"
    ) as caught:
        using(lambda resource: resource.wait_for_head(time.monotonic() - 1))
    assert "gpu" not in str(caught.value)
    server.refusals["GET", "events"] = [403] * 4
    with pytest.raises(hyperplane.StartTimeout, match="1 running but not ready"):
        using(lambda resource: resource.wait_for_head(time.monotonic() - 1))


def test_an_operator_that_does_not_react_is_named(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DaskClusterResource, "operator_seconds", -1.0)

    async def work(resource: DaskClusterResource) -> None:
        await resource.create(rendered(), {})
        await resource.wait_for_head(time.monotonic() + 60)

    with pytest.raises(hyperplane.StartFailed, match="operator of dask-kubernetes did not react"):
        using(work)


def test_a_kill_for_memory_is_logged_once(
    server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    add_pod(server, "worker", restartCount=1, lastState={"terminated": {"reason": "OOMKilled"}})

    async def work(resource: DaskClusterResource) -> None:
        await resource.warn_out_of_memory()
        await resource.warn_out_of_memory()

    with caplog.at_level(logging.WARNING):
        using(work)
    [record] = caplog.records
    assert record.getMessage() == (
        "pod flights-worker: the kernel killed it because it used more memory than its pod has, "
        "0.007 GB: raise ram_gb_per_proc, or use fewer threads"
    )


def test_logs_are_those_of_all_pods(server: ApiServer) -> None:
    add_pod(server, "scheduler")
    add_pod(server, "worker")
    server.logs["flights-scheduler"] = b"listens\n\n"
    server.logs["flights-worker"] = b"broken \xff\n"
    logs = using(lambda resource: resource.logs())
    assert logs == {"Scheduler": "listens", "flights-worker": "broken \ufffd"}


def test_a_deleted_cluster_is_gone_when_its_pods_have_ended(
    server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def create(resource: DaskClusterResource) -> None:
        await resource.create(rendered(), TLS)
        assert not await resource.is_gone()

    using(create)
    add_pod(server, "worker")
    using(lambda resource: resource.delete(0.01))
    assert "parts of it still exist" in caplog.text
    # The resource itself has no label with the name of the cluster.
    assert "'kubectl get daskcluster flights'" in caplog.text
    assert "'kubectl get pods -l dask.org/cluster-name=flights'" in caplog.text
    assert server.names("daskclusters") == server.names("secrets") == []
    assert using(lambda resource: resource.is_gone())
    del server.objects["pods", "flights-worker"]
    caplog.clear()
    using(lambda resource: resource.delete(60))
    assert caplog.text == ""
