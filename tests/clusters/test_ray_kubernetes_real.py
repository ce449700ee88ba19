"""The engine ``ray:kubernetes`` on a real Kubernetes with a small operator in place of KubeRay.

KubeRay itself is in no package registry. Its definition of the resource is applied, and
``kuberay_operator`` starts the pods. It needs a Kubernetes that scripts/engines/kubernetes_build
has built, or that is in its folder; otherwise the tests are skipped. They take five minutes.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import dask.config
import dask.dataframe as dd
import pandas as pd
import pytest
from kuberay_cases import definition
from kuberay_operator import RayOperator
from services import temporary_directory, until
from services_kubernetes import EXAMPLES, FOLDER, LONGEST, RUN, SCRIPTS, kubectl, start_kubernetes

import hyperplane
from hyperplane import ray_common as rc
from hyperplane.clusters.ray.kubernetes.render import build_manifest
from hyperplane.dataframe import to_ray_data

pytestmark = [
    pytest.mark.ray,
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(LONGEST + 1200),
    pytest.mark.skipif(
        not (FOLDER / "bin" / "kubelet").exists(), reason="no Kubernetes is built here"
    ),
]
NAMESPACE = "rays"
OPTIONS: dict[str, Any] = {
    "image": "test.invalid/hyperplane/ray:1",
    "image_pull_policy": "Never",
    "namespace": NAMESPACE,
    "cpu_reserved": 0.05,
    "scheduler_cpu": "700m",  # of two clusters at the same time
    "scheduler_ram": "2Gi",
}


def names(kinds: str) -> list[str]:
    """Return the names of the objects of a kind in the namespace."""
    return kubectl("-n", NAMESPACE, "get", kinds, "-o", "name").split()


def until_gone(cluster: str) -> None:
    """Wait until nothing of a cluster is left."""
    kinds = "rayclusters,jobs,pods,services,secrets"
    until(lambda: not any(cluster in each for each in names(kinds)), 300)


def pods(cluster: str, role: str) -> dict[str, str]:
    """Return the addresses of the ready pods with a role by their names."""
    labels = f"ray.io/node-type={role},ray.io/cluster={cluster}"
    listing = json.loads(kubectl("-n", NAMESPACE, "get", "pods", "-l", labels, "-o", "json"))
    return {
        pod["metadata"]["name"]: pod["status"].get("podIP", "")
        for pod in listing["items"]
        if "deletionTimestamp" not in pod["metadata"]
    }


def is_defined() -> bool:
    """Return whether the definition is in use; ``kubectl wait`` fails before it has conditions."""
    found = json.loads(kubectl("get", "crd/rayclusters.ray.io", "-o", "json"))
    wanted = {"type": "Established", "status": "True"}.items()
    return any(wanted <= each.items() for each in found.get("status", {}).get("conditions") or ())


def import_image() -> None:
    """Write the image of Ray with the packages of this Python, and import it, once."""
    socket, folder = str(RUN / "containerd.sock"), FOLDER / "images"
    ctr = ["ctr", "-a", socket, "-n", "k8s.io", "images"]
    listed = subprocess.run([*ctr, "list", "-q"], capture_output=True, text=True, check=True)
    if OPTIONS["image"] not in listed.stdout:
        write = [sys.executable, str(SCRIPTS / "kubernetes_image.py"), str(folder), "ray"]
        subprocess.run(write, check=True)
        subprocess.run([*ctr, "import", "--digests=false", str(folder / "ray.tar")], check=True)


@pytest.fixture(scope="module", autouse=True)
def own_temporary_directory() -> Iterator[None]:
    """One directory for all tests, in place of one for each: they share a cluster."""
    with temporary_directory():
        yield


@pytest.fixture(scope="module")
def operator(own_temporary_directory: None) -> Iterator[RayOperator]:
    """A namespace with the permissions of the example, and an operator."""
    start_kubernetes()
    import_image()
    kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")  # of a killed run
    kubectl("create", "namespace", NAMESPACE)
    with contextlib.ExitStack() as stack:
        stack.callback(kubectl, "delete", "namespace", NAMESPACE, "--wait=false")
        if "rayclusters.ray.io" not in kubectl("get", "crd", "-o", "name"):
            kubectl("create", "-f", "-", text=definition())
        until(is_defined, 60)
        rights = (
            (EXAMPLES / "rbac.yaml")
            .read_text()
            .replace("namespace: lab", f"namespace: {NAMESPACE}")
        )
        kubectl("apply", "-f", "-", text=rights)
        started = RayOperator(NAMESPACE)
        stack.callback(started.close)
        section = "hyperplane.engines"
        settings: dict[str, Any] = {f"{section}.auto": ["kubernetes"]}
        settings |= {f"{section}.ray_kubernetes.{key}": value for key, value in OPTIONS.items()}
        stack.enter_context(dask.config.set(settings))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("KUBECONFIG", str(RUN / "user.json"))
        yield started


@pytest.fixture(scope="module")
def cluster(operator: RayOperator) -> Iterator[Any]:
    """A cluster of one worker node, for the tests below in their order."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        started = rc.initialize_ray_cluster(1, 1, 0.5)
    started.printed = printed.getvalue().splitlines()
    try:
        yield started
    finally:
        rc.stop_ray_cluster(started)
        until_gone(started.name)


def test_the_documented_lines_and_rows(cluster: Any) -> None:
    [worker] = pods(cluster.name, "worker")
    assert cluster.printed == [
        "👉 Hyperplane: selecting worker node pool",
        f"ray dashboard available at {cluster.dashboard}/#/",
        f"Waiting for worker {worker}...",
    ]
    assert [tuple(row) for row in rc.find_ray_workers()] == [
        (name, "Running", address) for name, address in pods(cluster.name, "worker").items()
    ]


def test_the_resource_is_stored_as_it_was_rendered(cluster: Any) -> None:
    arguments = ("get", "raycluster", cluster.name, "-o", "json")
    stored = json.loads(kubectl("-n", NAMESPACE, *arguments))
    spec = build_manifest(cluster.plan)["spec"]
    for group in stored["spec"]["workerGroupSpecs"]:
        for default in ("numOfHosts", "priority", "scaleStrategy"):
            group.pop(default, None)
    assert stored["spec"] == spec, "the API server has dropped something"


def test_a_program_without_an_address_uses_the_cluster(cluster: Any) -> None:
    import ray

    ray.init(logging_level="ERROR")
    square = ray.remote(lambda number: number * number)
    assert ray.get([square.remote(number) for number in range(4)]) == [0, 1, 4, 9]
    where = ray.remote(lambda: ray.util.get_node_ip_address())
    assert {ray.get(where.remote())} == set(pods(cluster.name, "worker").values())
    assert ray.cluster_resources()["CPU"] == 1
    # Ray Data works in tasks only.
    with pytest.raises(hyperplane.EngineError, match="connected by Ray Client"):
        to_ray_data(dd.from_pandas(pd.DataFrame({"a": [1]}), npartitions=1))

    @ray.remote(num_cpus=0)
    def sum_of_ids() -> int:
        import ray.data

        total: int = ray.data.range(100).sum("id")
        return total

    assert ray.get(sum_of_ids.remote()) == 4950
    ray.shutdown()


def test_without_the_token_nothing_answers(cluster: Any) -> None:
    program = "import ray; ray.init(); print(ray.nodes())"

    def run(**variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "RAY_CLIENT_INITIAL_CONNECTION_TIMEOUT_S": "60", **variables}
        command = [sys.executable, "-c", program]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    allowed = run()
    assert "NodeID" in allowed.stdout, allowed.stderr
    refused = run(RAY_AUTH_TOKEN="0" * 64)
    assert refused.returncode
    assert "NodeID" not in refused.stdout
    assert re.search("unauthenticated|invalid.*token", refused.stderr, re.IGNORECASE)


def test_a_worker_node_is_added_and_a_deleted_pod_is_replaced(cluster: Any) -> None:
    assert rc.get_ray_cluster(extra_workers=1) is cluster
    before = pods(cluster.name, "worker")
    assert len(before) == 2
    gone = next(iter(before))
    kubectl("-n", NAMESPACE, "delete", "pod", gone, "--wait=false")
    until(lambda: len(cluster.workers) == 2 and gone not in cluster.workers, 300)


def test_another_program_attaches_and_stops_it(operator: RayOperator) -> None:
    settings = json.dumps({"hyperplane": dask.config.get("hyperplane")})
    program = """
import json, sys, time
import dask.config
dask.config.update(dask.config.config, json.loads(sys.argv[1]))
from hyperplane import ray_common as rc
print(rc.initialize_ray_cluster(1, 1, 0.5).name, flush=True)
time.sleep(600)
"""
    command = [sys.executable, "-c", program, settings]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        name = next(line for line in owner.stdout if line.startswith("ray-cluster")).strip()
        owner.kill()
    client, attached = hyperplane.get_cluster(name, "ray:kubernetes")
    assert client.ray.cluster_resources()["CPU"] == 1
    client.close()
    attached.close()
    until_gone(name)


def test_a_job_ends_an_idle_cluster(operator: RayOperator) -> None:
    client, cluster = hyperplane.start(
        hyperplane.plan_cluster(
            engine="ray:kubernetes",
            num_workers=1,
            nprocs=1,
            nthreads=1,
            cores_per_worker=1,
            ram_gb_per_proc=0.5,
            idle_timeout=20,
        )
    )
    assert cluster.status == "running"
    until_gone(cluster.name)
    with pytest.raises(hyperplane.EngineError, match="its idle timeout has passed"):
        _ = client.ray
    assert cluster.status == "closed"
