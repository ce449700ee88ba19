"""Records and budgets on Kubernetes: an API server without nodes, and the processes of the pods."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import rpc
from kubernetes_cases import plan
from kubernetes_server import NAMESPACE, ApiServer, Object, running_api_server
from services import until

import hyperplane
from hyperplane.clusters.dask import run_usage
from hyperplane.clusters.dask.kubernetes.cluster import HyperplaneKubeCluster
from hyperplane.clusters.dask.kubernetes.resource import DaskClusterResource
from hyperplane.history import list_runs
from hyperplane.history.run_record import RunRecord

pytestmark = pytest.mark.cluster
#: Runs a command of Dask in a process without this package.
WITHOUT = "import sys; sys.modules['hyperplane'] = None; from dask.__main__ import main; main()"


class Pods:
    """The processes of the pods of one cluster, and the operator's question whether it is idle."""

    def __init__(self, folder: Path, server: ApiServer) -> None:
        self.file, self.server = folder / "scheduler.json", server
        self.processes: list[subprocess.Popen[bytes]] = []
        self.idle_timeout = 0
        server.operators["daskclusters"] = self.run

    def run(self, cluster: Object) -> None:
        """Start the containers of a new resource."""
        if self.processes:
            return
        spec = cluster["spec"]
        self.idle_timeout = spec["idleTimeout"]
        [scheduler] = spec["scheduler"]["spec"]["containers"]
        local = ["--host", "127.0.0.1", "--scheduler-file", str(self.file)]
        self._start(scheduler, {"8786": "0", ":8787": "127.0.0.1:0"}, local)
        [worker] = spec["worker"]["spec"]["containers"]
        local = ["--host", "127.0.0.1", "--scheduler-file", str(self.file)]
        self._start(worker, {"$(DASK_WORKER_NAME)": "one", ":8788": "127.0.0.1:0"}, local)

    def _start(self, container: Object, replaced: dict[str, str], local: list[str]) -> None:
        words = [replaced.get(word, word.replace("$$", "$")) for word in container["args"][1:]]
        variables = {each["name"]: each.get("value", "") for each in container["env"]}
        command = [sys.executable, "-c", WITHOUT, *words, *local]
        environment = {**os.environ, **variables}
        self.processes.append(
            subprocess.Popen(command, env=environment, cwd=self.file.parent, start_new_session=True)
        )

    @property
    def address(self) -> str:
        until(self.file.exists)
        return str(json.loads(self.file.read_text())["address"])

    def is_over(self) -> bool:
        """Return whether the operator would delete the cluster, whatever its idle timeout."""

        async def ask() -> Any:
            async with rpc(self.address) as scheduler:
                return await scheduler.check_idle()

        return asyncio.run(ask()) == 1.0

    def delete(self) -> None:
        """Do what the operator does with a cluster that is idle for too long."""
        path = f"/apis/kubernetes.dask.org/v1/namespaces/{NAMESPACE}/daskclusters/flights"
        self.server.respond("DELETE", path, b"")
        self.end()

    def end(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(120)


@pytest.fixture
def pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pods]:
    async def soon(resource: DaskClusterResource, deadline: float) -> None:
        await asyncio.to_thread(lambda: running.address)

    async def reach(cluster: HyperplaneKubeCluster) -> None:
        cluster.scheduler_comm = rpc(running.address)
        await cluster._refresh_info()

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(DaskClusterResource, "wait_for_head", soon)
    monkeypatch.setattr(HyperplaneKubeCluster, "_reach_scheduler", reach)
    monkeypatch.setattr(run_usage, "COPY_INTERVAL", 0.5)
    with running_api_server(tmp_path, monkeypatch) as server:
        running = Pods(tmp_path, server)
        yield running
        running.end()


def start(**arguments: Any) -> tuple[Any, Any]:
    options = {"security": "none", "port_forward": "never", "versions": "warn"}
    small = {"num_workers": 1, "nprocs": 1, "nthreads": 1, "ram_gb_per_proc": 0.5, "timeout": 120}
    return hyperplane.start(plan(options, **{**small, **arguments}))


def check_figures(record: RunRecord) -> None:
    assert record.plan.engine == "kubernetes"
    assert [(task.name, task.count) for task in record.tasks] == [("add", 1)]
    assert [worker.name for worker in record.workers] == ["one"]


@pytest.mark.slow
def test_the_owner_writes_a_record(pods: Pods) -> None:
    client, cluster = start()
    assert client.submit(sum, [1, 2], key="add-1").result(120) == 3
    client.close()
    cluster.close()
    [record] = list_runs()
    assert record.exit_reason == "closed"
    check_figures(record)


@pytest.mark.slow
def test_a_used_budget_ends_the_cluster_and_leaves_a_record(
    pods: Pods, recwarn: pytest.WarningsRecorder
) -> None:
    # The client tries to connect again for this time when the pods are deleted.
    with dask.config.set({"distributed.comm.timeouts.connect": "5s"}):
        check_used_budget(pods)
    assert any("budget of 0.0015 core-hours is used up" in str(each.message) for each in recwarn)


def check_used_budget(pods: Pods) -> None:
    # 5 s with one core and 10 s of notice: the rest of the start and the task count, too.
    client, cluster = start(budget=0.0015)
    assert pods.idle_timeout > 0, "otherwise the operator would not ask"
    assert client.submit(sum, [1, 2], key="add-1").result(120) == 3
    until(pods.is_over)
    pods.delete()
    until(lambda: cluster.status.name == "closed")
    [record] = list_runs()
    assert record.exit_reason == "its budget is used up"
    check_figures(record)
