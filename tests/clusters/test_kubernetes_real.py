"""The kubernetes engine on a real Kubernetes: the contract, sizes, closing and lost pods."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.config
import pytest
from contract import DaskEngineContract, slow_square
from distributed import Client, wait
from services import until
from services_kubernetes import (
    EXAMPLES,
    IMAGE,
    LONGEST,
    NAMESPACE,
    SCRIPTS,
    clusters,
    kubectl,
    left,
    objects,
    service,
)

import hyperplane
from hyperplane.clusters.dask.kubernetes.render import build_manifest
from hyperplane.platforms.kubernetes.pod_status import is_deleted

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.timeout(LONGEST),
    pytest.mark.filterwarnings("ignore:Kubernetes version:UserWarning"),
    # The flights are sent in the graph, because pods do not see the files of this machine.
    pytest.mark.filterwarnings("ignore:Sending large graph:UserWarning"),
]
SMALL: dict[str, Any] = {
    "num_workers": 1,
    "nprocs": 2,
    "nthreads": 1,
    "cores_per_worker": 2,
    "ram_gb_per_proc": 0.5,
    "timeout": 150,
}
SQUARES = sum(number * number for number in range(60))


@pytest.fixture(scope="module", autouse=True)
def _kubernetes() -> Iterator[None]:
    with service():
        yield


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    until(lambda: not clusters() and not left("deployments,services,secrets"))


def plan(**options: Any) -> hyperplane.ClusterPlan:
    return hyperplane.plan_cluster(**{"engine": "kubernetes", **SMALL, **options})


def workers_of(cluster: Any) -> list[str]:
    """Return the names of worker pods that are not being deleted."""
    found = [one["metadata"] for one in objects("pods", cluster.name, "worker")]
    return [one["name"] for one in found if "deletionTimestamp" not in one]


class TestContract(DaskEngineContract):
    engine = "kubernetes"
    small = SMALL
    shares_disk = False

    def check_terminate(self, cluster: Any, expected: float) -> None:
        def of_nanny(dask_worker: Any) -> Any:
            return dask_worker.memory_manager.memory_terminate_fraction

        with Client(cluster) as client:
            assert set(client.run(of_nanny, nanny=True).values()) == {expected}


def test_the_resource_is_stored_as_it_was_rendered() -> None:
    cluster_plan = plan()
    client, cluster = hyperplane.start(cluster_plan)
    with cluster, client:
        [stored] = json.loads(kubectl("-n", NAMESPACE, "get", "daskclusters", "-o", "json"))[
            "items"
        ]
        assert stored["spec"] == build_manifest(cluster_plan)["spec"], (
            "the API server has dropped something"
        )
        for pod in objects("pods", cluster.name):
            given = pod["spec"]["containers"][0]["resources"]
            assert given["requests"]["memory"] == given["limits"]["memory"]
            assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
            assert not [v for v in pod["spec"]["volumes"] if "token" in v["name"]]
        assert set(client.run(os.getuid).values()) == {1000}
        # A worker has exactly the memory and threads of the plan.
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        assert {(one["memory_limit"], one["nthreads"]) for one in workers} == {(500_000_000, 1)}


def test_a_pod_deleted_in_mid_job_costs_no_result() -> None:
    client, cluster = hyperplane.start(plan())
    with cluster, client:
        futures = client.map(slow_square(), range(60), pure=False)
        until(lambda: sum(future.status == "finished" for future in futures) > 5)
        victim = workers_of(cluster)[0]
        kubectl("-n", NAMESPACE, "delete", "pod", victim, "--grace-period=0", "--force")
        assert sum(client.gather(futures)) == SQUARES
        until(lambda: len(client.nthreads()) == 2)
        assert len(workers_of(cluster)) == 2
        assert victim not in workers_of(cluster)


def test_results_move_when_a_cluster_gets_smaller() -> None:
    client, cluster = hyperplane.start(plan())
    with cluster, client:
        cluster.scale(3)
        client.wait_for_workers(3, timeout=60)
        futures = client.map(slow_square(), range(60), pure=False)
        wait(futures)
        cluster.scale(1)
        until(lambda: len(client.nthreads()) == 1 and len(workers_of(cluster)) == 1)
        assert {future.status for future in futures} == {"finished"}
        assert sum(client.gather(futures)) == SQUARES


def test_it_adapts_to_the_work() -> None:
    client, cluster = hyperplane.start(plan(nprocs=1, cores_per_worker=1))
    with cluster, client:
        cluster.adapt(minimum=1, maximum=2)
        futures = client.map(slow_square(), range(600), pure=False)
        until(lambda: len(client.nthreads()) == 2, 90)
        del futures
        until(lambda: len(client.nthreads()) == 1, 90)


def test_a_worker_that_needs_more_memory_than_its_pod_is_reported() -> None:
    def hog() -> int:
        data = bytearray(900 * 2**20)
        for at in range(0, len(data), 4096):
            data[at] = 1
        return len(data)

    client, cluster = hyperplane.start(plan())
    with cluster, client:
        future = client.submit(hog, pure=False)
        with pytest.raises(Exception, match=r"4 .*workers|died|memory") as caught:
            future.result(timeout=120)
        assert type(caught.value).__name__ == "KilledWorker"
        until(lambda: len(client.nthreads()) == 2)
        assert client.submit(sum, [1, 2]).result() == 3
        logs = "\n".join(cluster.get_logs().values())
        assert "killed by signal 9" in logs or "exceeded" in logs


def test_closing_leaves_nothing_and_may_be_done_twice() -> None:
    import threading

    before = {thread.name for thread in threading.enumerate()}
    client, cluster = hyperplane.start(plan())
    name = cluster.name
    assert objects("secrets", name)
    client.close()
    cluster.close()
    cluster.close()
    assert not clusters()
    assert not [pod for pod in objects("pods", name) if not is_deleted(pod)]
    until(lambda: {thread.name for thread in threading.enumerate()} <= before | {"IO loop"})


def test_the_dashboard_is_reached_through_a_port_of_this_machine_only() -> None:
    import urllib.request

    client, cluster = hyperplane.start(plan())
    with cluster, client:
        assert cluster.dashboard_link.startswith("http://127.0.0.1:")
        assert client.dashboard_link == cluster.dashboard_link
        assert urllib.request.urlopen(cluster.dashboard_link).status == 200


def test_clients_without_the_key_of_the_cluster_are_refused() -> None:
    client, cluster = hyperplane.start(plan())
    with cluster, client:
        assert cluster.scheduler_address.startswith("tls://")
        plain = cluster.scheduler_address.replace("tls://", "tcp://")
        quick = {"distributed.comm.timeouts.connect": "2s", "distributed.comm.retry.count": 0}
        with pytest.raises((OSError, TypeError)), dask.config.set(quick):
            Client(plain, timeout=3)
        assert client.submit(sum, [1, 2]).result() == 3


def test_security_none_starts_without_tls() -> None:
    client, cluster = hyperplane.start(plan(engine_options={"security": "none"}))
    with cluster, client:
        assert cluster.scheduler_address.startswith("tcp://127.0.0.1:")
        assert not objects("secrets", cluster.name)
        assert client.submit(sum, [1, 2]).result() == 3
        cluster.scale(1)
        until(lambda: len(client.nthreads()) == 1)


PROGRAM = """
import json, sys, warnings
warnings.filterwarnings("ignore", message="Kubernetes version")
sys.path.insert(0, sys.argv[1])
import kubernetes_shim, hyperplane, dask
dask.config.set({"hyperplane.engines.kubernetes": json.loads(sys.argv[2])})
"""


def program(text: str, *arguments: str) -> subprocess.Popen[str]:
    settings = json.dumps(dask.config.get("hyperplane.engines.kubernetes"))
    command = [sys.executable, "-c", PROGRAM + text, str(SCRIPTS), settings, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_another_process_attaches_and_leaves_the_cluster_running() -> None:
    client, cluster = hyperplane.start(plan())
    with cluster, client:
        text = (
            "client, cluster = hyperplane.get_cluster(sys.argv[3], 'kubernetes')\n"
            "print(client.submit(sum, [1, 2]).result(), len(client.nthreads()))"
        )
        with program(text, cluster.name) as other:
            assert other.communicate(timeout=60)[0].split() == ["3", "2"]
        assert client.submit(sum, [3, 4]).result() == 7, "the other has ended, the cluster has not"


START = (
    "plan = hyperplane.plan_cluster(engine='kubernetes', **json.loads(sys.argv[3]))\n"
    "client, cluster = hyperplane.start(plan)\n"
    "print('ready', flush=True)\n"
)


def test_a_cluster_ends_with_its_program() -> None:
    with program(START, json.dumps(SMALL)) as owner:
        assert owner.communicate(timeout=150)[0].split() == ["ready"]
    until(lambda: not clusters())


def test_the_cluster_of_a_program_that_is_killed_ends_by_itself() -> None:
    arguments = json.dumps({**SMALL, "idle_timeout": 15})
    with program(
        START + "held = client.submit(sum, [1])\nimport time; time.sleep(999)", arguments
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "ready\n"
        time.sleep(35)
        assert clusters(), "a result is held on it"
        os.kill(owner.pid, signal.SIGKILL)
    until(lambda: not clusters(), 120)


def test_the_examples_are_accepted_by_an_api_server(tmp_path: Path) -> None:
    for file in ("rbac.yaml", "network-policy.yaml"):
        output = kubectl("apply", "--dry-run=server", "-f", str(EXAMPLES / file))
        assert output.count("(server dry run)") == 2
    assert IMAGE not in (EXAMPLES / "operator-values.yaml").read_text()
