"""The engine ``ray:kubernetes`` on a small API server without nodes, and a small operator."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask.config
import pytest
from kuberay_cases import plan
from kuberay_pods import (
    OPTIONS,
    Object,
    Operator,
    configured,
    operator,
    server,
    start,
)
from kubernetes_server import NAMESPACE, ApiServer
from services import is_empty, temporary_directory

import hyperplane
from hyperplane import ray_common as rc
from hyperplane.cli.app import app
from hyperplane.clusters import records
from hyperplane.clusters.ray.kubernetes.cluster import KubernetesRayCluster
from hyperplane.clusters.ray.kubernetes.engine import KubernetesRayEngine
from hyperplane.clusters.ray.kubernetes.resource import ClusterCredentials, RayClusterResource
from hyperplane.clusters.remote_nodes import slurm_listing
from hyperplane.clusters.remote_nodes.certificates import CertificateAuthority
from hyperplane.errors import EngineError, StartFailed, StartTimeout

__all__ = ["configured", "operator", "server"]  # fixtures

WAITING: Object = {
    "name": "idle",
    "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
}
UNSCHEDULABLE: Object = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available",
}


def test_a_start_creates_the_objects_and_closing_deletes_them(
    server: ApiServer, operator: Operator
) -> None:
    before = os.environ.get("RAY_ADDRESS")
    client, cluster = start()
    [job] = server.names("jobs")
    resource = server.objects["rayclusters", "flights"]
    secret = server.objects["secrets", "flights-access"]
    assert job == "flights-idle"
    # The Job owns the resource, and that the Secret: all end with the Job.
    assert resource["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "flights-idle",
            "uid": server.objects["jobs", job]["metadata"]["uid"],
        }
    ]
    [owner] = secret["metadata"]["ownerReferences"]
    assert owner["uid"] == resource["metadata"]["uid"]
    assert sorted(secret["data"]) == [
        *("auth_token", "authority.pem", "ca.crt", "ca.key", "certificate.pem", "key.pem")
    ]
    assert cluster.address == f"ray://flights-head-svc.{NAMESPACE}.svc:10001"
    assert cluster.dashboard == f"http://flights-head-svc.{NAMESPACE}.svc:8265"
    assert os.environ["RAY_ADDRESS"] == cluster.address == client.address
    token = base64.b64decode(secret["data"]["auth_token"]).decode()
    assert os.environ["RAY_AUTH_TOKEN"] == token
    certificate = Path(os.environ["RAY_TLS_SERVER_CERT"])
    assert certificate.read_bytes() == base64.b64decode(secret["data"]["certificate.pem"])
    assert certificate.with_name("key.pem").stat().st_mode & 0o777 == 0o600
    # The token is only in the Secret.
    others = {key: value for key, value in server.objects.items() if key[0] != "secrets"}
    assert token not in str(others)
    assert token not in repr(cluster) + repr(client) + repr(cluster.record)
    assert not cluster._resource.access.authority_key
    assert cluster.workers == ["flights-workers-2", "flights-workers-3"]
    assert cluster.status == "running"
    cluster.close()
    cluster.close()
    assert cluster.status == "closed"
    assert cluster.workers == []
    assert server.objects == {}
    assert os.environ.get("RAY_ADDRESS") == before
    assert not certificate.exists()
    with pytest.raises(EngineError, match="the cluster has ended: it was closed"):
        _ = client.ray


def test_without_tls_and_timeout_there_is_only_a_token(
    server: ApiServer, operator: Operator
) -> None:
    _, cluster = start(options={"security": "none", "idle_timeout": None, "keep_alive": True})
    assert server.names("jobs") == []
    assert "ownerReferences" not in server.objects["rayclusters", "flights"]["metadata"]
    assert list(server.objects["secrets", "flights-access"]["data"]) == ["auth_token"]
    assert "RAY_USE_TLS" not in os.environ
    cluster.close()
    assert server.objects == {}


@pytest.mark.slow
def test_the_documented_functions(
    server: ApiServer,
    operator: Operator,
    configured: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from hyperplane.clusters.ray.kubernetes import engine

    monkeypatch.setattr(engine, "is_installed", lambda name: True)
    cluster = rc.initialize_ray_cluster(2, 4, 8)
    assert isinstance(cluster, KubernetesRayCluster)
    first, second = cluster.workers
    assert capsys.readouterr().out.splitlines() == [
        "👉 Hyperplane: selecting worker node pool",
        f"ray dashboard available at {cluster.dashboard}/#/",
        f"Waiting for worker {first}...",
        f"Waiting for worker {second}...",
    ]
    assert rc.find_ray_workers() == [
        (first, "Running", "10.0.0.2"),
        (second, "Running", "10.0.0.3"),
    ]
    assert rc.get_ray_cluster() is cluster
    assert rc.initialize_ray_cluster(0, use_existing=True) is cluster
    capsys.readouterr()
    rc.get_ray_cluster(extra_workers=1)
    third = cluster.workers[-1]
    assert capsys.readouterr().out == f"Waiting for worker {third}...\n"
    [record] = records.read_all()
    assert (record.engine, record.workers) == ("ray:kubernetes", 3)
    replaced = rc.initialize_ray_cluster(1, 4, 8)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [f"deleting pod {name}" for name in (first, second, third)]
    assert server.names("rayclusters") == [replaced.name]
    [worker] = replaced.workers
    rc.stop_ray_cluster(replaced)
    assert capsys.readouterr().out == f"Deleting {worker}\n"
    assert server.objects == {}


def test_initialize_cluster_prints_what_it_creates(
    server: ApiServer,
    operator: Operator,
    configured: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from hyperplane.clusters.ray.kubernetes import engine

    monkeypatch.setattr(engine, "is_installed", lambda name: True)
    client, cluster = hyperplane.initialize_cluster(
        2, nprocs=1, nthreads=4, ram_gb_per_proc=8, cores_per_worker=4, framework="ray"
    )
    printed = capsys.readouterr().out
    assert "creating a RayCluster of KubeRay with the pod of the head and 2 worker pods" in printed
    assert f"ray dashboard available at {cluster.dashboard}" in printed
    client.close()
    cluster.close()


@pytest.mark.slow
def test_other_programs_attach_by_the_name(server: ApiServer, operator: Operator) -> None:
    engine = KubernetesRayEngine()
    _, own = start()
    assert engine.connect("flights", own._settings).cluster is own
    settings, record = own._settings, own.record
    own.detach()  # as if its process had been killed
    assert server.names("rayclusters") == ["flights"]
    assert [name for name, _ in engine.list_workers(record, settings)] == [
        "flights-workers-2",
        "flights-workers-3",
    ]
    client, attached = engine.connect("flights", settings)
    assert os.environ["RAY_ADDRESS"] == attached.address == client.address
    assert Path(os.environ["RAY_TLS_SERVER_KEY"]).exists()
    attached.add_workers(1, lambda name: None)
    assert len(attached.workers) == 3
    attached.close()
    assert server.objects == {}
    with pytest.raises(EngineError, match="no cluster 'flights'; running: none"):
        engine.connect("flights", settings)


def test_a_cluster_of_another_program_is_not_used(server: ApiServer, operator: Operator) -> None:
    metadata = {"name": "theirs", "uid": "u"}
    spec = {"workerGroupSpecs": []}
    server.objects["rayclusters", "theirs"] = {"metadata": metadata, "spec": spec}
    settings: Any = plan(OPTIONS).settings
    with pytest.raises(EngineError, match="was not started by hyperplane"):
        KubernetesRayEngine().connect("theirs", settings)
    assert server.names("rayclusters") == ["theirs"]


def test_the_commands_list_and_stop_it(
    server: ApiServer, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    # Without the jobs of a Slurm on this machine.
    monkeypatch.setattr(slurm_listing, "find_missing_commands", lambda: ["squeue"])
    _, cluster = start()
    listed = CliRunner().invoke(app, ["cluster", "list"])
    assert "ray:kubernetes" in listed.output
    assert cluster.address in listed.output
    stopped = CliRunner().invoke(app, ["cluster", "stop", "flights"])
    assert stopped.output.splitlines()[-1] == "flights is closed"
    assert server.objects == {}


@pytest.mark.process
@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "os.kill(os.getpid(), 9)"])
def test_a_program_that_ends_closes_its_cluster_unless_it_is_killed(
    server: ApiServer, operator: Operator, end: str
) -> None:
    program = f"""
import os
import hyperplane
plan = hyperplane.plan_cluster(
    1, nprocs=1, engine="ray:kubernetes", name="flights", engine_options={OPTIONS}
)
client, cluster = KubernetesRayEngine().start(plan)
assert cluster.status == "running"
{end}
"""
    # Ray is not installed here, so that hyperplane.start would refuse the plan.
    engine = "hyperplane.clusters.ray.kubernetes.engine"
    program = f"from {engine} import KubernetesRayEngine\n{program}"
    subprocess.run([sys.executable, "-c", program], timeout=200)
    if "kill" in end:
        assert server.names("rayclusters") == ["flights"]  # until the Job ends
        assert server.names("jobs") == ["flights-idle"]
        assert records.read_all() == []  # removes the files of the killed program
    else:
        assert server.objects == {}


def test_a_cluster_that_has_been_idle_is_reported(
    server: ApiServer, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hyperplane.clusters.ray.kubernetes import cluster as module

    monkeypatch.setattr(module, "POLL_SECONDS", 0)
    client, cluster = start()
    server.respond("DELETE", f"/namespaces/{NAMESPACE}/jobs/flights-idle", b"")  # as its TTL does
    assert server.objects == {}
    with pytest.raises(EngineError, match="its lease has expired, or it was deleted"):
        _ = client.ray
    assert cluster.status == "closed"
    assert records.read_all() == []


def test_kuberay_that_is_not_installed_is_named(server: ApiServer) -> None:
    server.refusals["POST", "rayclusters"] = [404]
    with pytest.raises(StartFailed, match=r"operator of KubeRay is not installed.*helm install"):
        start()
    assert server.objects == {}


def test_missing_permissions_are_named(server: ApiServer) -> None:
    server.refusals["POST", "rayclusters"] = [403] * 5
    with pytest.raises(StartFailed, match=r"not allowed to create rayclusters.*rbac\.yaml"):
        start()
    assert server.objects == {}


def test_an_operator_that_does_not_react_is_named(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RayClusterResource, "operator_seconds", -1.0)
    with pytest.raises(StartFailed, match="operator of KubeRay did not react"):
        start()
    assert server.objects == {}
    server.objects["events", "refusal"] = {
        "metadata": {"name": "refusal"},
        "involvedObject": {"kind": "RayCluster", "name": "flights"},
        "reason": "InvalidRayClusterSpec",
        "message": "the name is too long",
    }
    with pytest.raises(StartFailed, match="InvalidRayClusterSpec: the name is too long"):
        start()
    assert server.names("rayclusters") == []


def test_a_pod_that_cannot_start_is_an_error_with_its_reason(
    server: ApiServer, operator: Operator
) -> None:
    def break_workers(pod: Object) -> None:
        if "workers" in pod["metadata"]["name"]:
            waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
            status = {"name": "ray-worker", "state": {"waiting": waiting}}
            pod["status"] = {"phase": "Pending", "containerStatuses": [status]}

    operator.change = break_workers
    with pytest.raises(StartFailed, match=r"flights-workers-2: ImagePullBackOff: no such image"):
        start()
    assert server.objects == {}


def test_a_pod_with_an_image_of_another_section_names_that_section(
    server: ApiServer, operator: Operator
) -> None:
    def break_pod(pod: Object) -> None:
        status = {"name": "ray-head", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
        pod["status"] = {"phase": "Pending", "containerStatuses": [status]}

    operator.change = break_pod
    section = "hyperplane.engines.ray_kubernetes"
    with (
        dask.config.set({f"{section}.{name}": value for name, value in OPTIONS.items()}),
        pytest.raises(StartFailed, match=f"check {section}.image and hyperplane.engines.kubern"),
    ):
        KubernetesRayEngine().start(hyperplane.plan_cluster(1, nprocs=1, engine="ray:kubernetes"))


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (
            {"containerStatuses": [WAITING]},
            "does not run: pod flights-idle-x: ImagePullBackOff: no such image; chec",
        ),
        (  # until an autoscaler adds a node
            {"conditions": [UNSCHEDULABLE]},
            "cannot be scheduled yet: Unschedulable: 0/3 nodes are available",
        ),
        ({"conditions": [{"type": "Ready", "status": "True"}]}, ""),
        ({}, ""),  # it may start later
    ],
)
def test_a_job_that_cannot_run_is_a_warning(
    server: ApiServer,
    operator: Operator,
    caplog: pytest.LogCaptureFixture,
    status: Object,
    reason: str,
) -> None:
    pod = {"metadata": {"name": "flights-idle-x"}, "spec": {}, "status": status}
    server.run = lambda job: [pod]
    _, cluster = start()
    found = [record.getMessage() for record in caplog.records]
    assert len(found) == bool(reason)
    if reason:
        [text] = found
        assert text.startswith(f"the Job flights-idle, which ends the cluster, {reason}")
    cluster.close()


def test_a_quota_that_refuses_the_pod_of_the_job_is_a_warning(
    server: ApiServer, operator: Operator, caplog: pytest.LogCaptureFixture
) -> None:
    server.objects["events", "refusal"] = {
        "metadata": {"name": "refusal"},
        "involvedObject": {"kind": "Job", "name": "flights-idle"},
        "reason": "FailedCreate",
        "message": "exceeded quota: pods",
    }
    _, cluster = start()
    assert "does not run: FailedCreate: exceeded quota: pods" in caplog.text
    cluster.close()


def test_a_start_that_takes_too_long_has_the_state_of_the_pods(
    server: ApiServer, operator: Operator
) -> None:
    def wait(pod: Object) -> None:
        if pod["metadata"]["name"].endswith("-3"):
            pod["status"] = {"phase": "Pending"}

    operator.change = wait
    with pytest.raises(StartTimeout, match=r"1 of 2 worker nodes have started.*1 Pending"):
        start(timeout=1)
    assert server.objects == {}


@pytest.mark.slow
def test_worker_nodes_that_do_not_start_leave_the_cluster(
    server: ApiServer, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, cluster = start(timeout=2)
    operator.change = lambda pod: pod["status"].update(phase="Pending", conditions=[])
    with pytest.raises(StartTimeout, match=r"2 of 3 .*the cluster continues without them"):
        cluster.add_workers(1, lambda name: None)
    assert cluster.status == "running"
    before = cluster.workers
    assert len(before) == 2
    [group] = server.objects["rayclusters", "flights"]["spec"]["workerGroupSpecs"]
    assert group["replicas"] == 2  # Kubernetes no longer tries
    assert [pod["metadata"]["name"] for pod in operator.pods("flights", "worker")] == before
    cluster.close()


def test_a_number_that_another_program_changes_is_read_again(
    server: ApiServer, operator: Operator
) -> None:
    _, cluster = start()
    server.refusals["PATCH", "rayclusters"] = [422, 422]
    cluster.add_workers(1, lambda name: None)
    assert len(cluster.workers) == 3
    server.refusals["PATCH", "rayclusters"] = [422, 422, 422]
    with pytest.raises(EngineError, match="another program changed it at the same time"):
        cluster.add_workers(1, lambda name: None)
    assert len(cluster.workers) == 3
    cluster.close()


@pytest.mark.slow
def test_worker_nodes_that_cannot_be_withdrawn_are_reported(
    server: ApiServer, operator: Operator, caplog: pytest.LogCaptureFixture
) -> None:
    _, cluster = start(timeout=2)

    def refuse(pod: Object) -> None:
        pod["status"].update(phase="Pending", conditions=[])
        server.refusals["PATCH", "rayclusters"] = [403] * 5

    operator.change = refuse
    with pytest.raises(StartTimeout, match=r"2 of 3 "):
        cluster.add_workers(1, lambda name: None)
    assert "Kubernetes keeps trying to start the worker nodes of cluster flights" in caplog.text
    cluster.close()


def test_a_job_of_another_owner_is_not_deleted(server: ApiServer, operator: Operator) -> None:
    _, cluster = start(options={"idle_timeout": None, "keep_alive": True})
    cluster.detach()
    server.objects["jobs", "flights-idle"] = {"metadata": {"name": "flights-idle", "uid": "u"}}
    KubernetesRayEngine().connect("flights", cluster._settings).cluster.close()
    assert list(server.objects) == [("jobs", "flights-idle")]


def test_a_name_that_is_taken_is_refused(server: ApiServer, operator: Operator) -> None:
    _, cluster = start()
    with pytest.raises(StartFailed, match="already running"):
        start()
    assert cluster.status == "running"
    cluster.close()


def test_no_configuration_of_kubectl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with temporary_directory():
        with pytest.raises(StartFailed, match="no usable configuration"):
            start()
        settings: Any = plan(OPTIONS).settings
        with pytest.raises(StartFailed, match="no usable configuration"):
            KubernetesRayEngine().connect("flights", settings)
        assert is_empty(Path(os.environ["TMPDIR"]))


def test_the_access_survives_its_secret() -> None:
    access = ClusterCredentials.create(tls=True)
    found = ClusterCredentials.from_contents(access.to_contents())
    assert found == access._replace(authority_key=b"")
    texts = [text.decode(errors="replace") for text in access.to_contents().values()]
    for shown in (repr(access), repr(CertificateAuthority().issue("127.0.0.1"))):
        assert "PRIVATE KEY" not in shown
        assert not any(text in shown for text in texts)
    assert len({ClusterCredentials.create(tls=False).token for _ in range(3)}) == 3
