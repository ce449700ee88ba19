"""The pane's addresses of a real Jupyter server with dask-labextension."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable

import pytest
from distributed import Client
from lab_server import Answer, Kernel, LabServer
from services import until

import hyperplane
from hyperplane.clusters import records

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

#: What a notebook does; the next lines are put after it.
START = """
import hyperplane
client, cluster = hyperplane.initialize_cluster(
    num_workers={nodes}, nprocs=1, nthreads=1, ram_gb_per_proc=0.5, local_fit="exact", name="{name}"
)
"""


def running() -> dict[str, records.ClusterRecord]:
    return {each.name: each for each in records.read_all()}


def count_workers(server: LabServer, name: str, workers: int) -> bool:
    return server.clusters()[name]["workers"] == workers


def test_a_new_cluster_of_the_pane_is_scaled_watched_and_stopped(server: LabServer) -> None:
    before = set(running())
    model = server.request("PUT", "dask/clusters")
    [name] = set(running()) - before
    record = running()[name]
    assert record.pid == server.process.pid
    assert (model["name"], model["workers"], model["cores"]) == ("HyperplaneCluster 1", 2, 2)
    assert model["scheduler_address"] == record.scheduler
    # As all local clusters: on the loopback address, where the guard refuses other users.
    assert model["scheduler_address"].startswith("tcp://127.0.0.1:")
    assert model["dashboard_link"].startswith("http://127.0.0.1:")
    # What the pane inserts into a notebook.
    with Client(model["scheduler_address"]) as client:
        assert client.submit(sum, [1, 2]).result(timeout=120) == 3
    path = f"dask/clusters/{model['id']}"
    plots = server.request("GET", f"dask/dashboard/{model['id']}/individual-plots.json")
    assert plots["Individual Task Stream"] == "/individual-task-stream"
    page = server.request("GET", f"dask/dashboard/{model['id']}/individual-task-stream")
    assert "<title>Dask: TaskStream</title>" in page

    assert "adapt" not in server.request("PATCH", path, {"workers": 1})
    until(lambda: count_workers(server, "HyperplaneCluster 1", 1))
    limits = {"minimum": 0, "maximum": 2}
    assert server.request("PATCH", path, {"adapt": limits})["adapt"] == limits
    until(lambda: count_workers(server, "HyperplaneCluster 1", 0))  # there is no work
    assert server.request("PATCH", path, {"workers": 2}).get("adapt") is None
    until(lambda: count_workers(server, "HyperplaneCluster 1", 2))
    assert list(server.clusters()) == ["HyperplaneCluster 1"], "it is listed once"

    server.request("DELETE", path)
    assert server.clusters() == {}
    assert name not in running()


def test_a_cluster_of_a_kernel_is_listed_scaled_watched_and_stopped(server: LabServer) -> None:
    kernel = Kernel(server)
    kernel.run(START.format(nodes=1, name="of-kernel"))
    until(lambda: "of-kernel" in server.clusters())
    model = server.clusters()["of-kernel"]
    assert (model["workers"], model.get("adapt")) == (1, None)
    assert model["scheduler_address"] == running()["of-kernel"].scheduler
    plots = server.request("GET", f"dask/dashboard/{model['id']}/individual-plots.json")
    assert "Individual Workers Memory" in plots

    path = f"dask/clusters/{model['id']}"
    server.request("PATCH", path, {"workers": 2})
    until(lambda: count_workers(server, "of-kernel", 2))
    assert kernel.run("client.wait_for_workers(2, 60); print(len(cluster.worker_spec))") == "2\n"
    server.request("DELETE", path)
    assert server.clusters() == {}
    assert kernel.run("print(cluster.status.name, cluster.end_reason)") == (
        "closed closed by another program\n"
    )

    # One that the notebook closes, or that ends with the kernel, leaves the pane.
    kernel.run(START.format(nodes=1, name="of-kernel"))
    until(lambda: "of-kernel" in server.clusters())
    kernel.run("client.close(); cluster.close()")
    until(lambda: server.clusters() == {})
    kernel.run(START.format(nodes=1, name="of-kernel"))
    until(lambda: "of-kernel" in server.clusters())
    server.request("DELETE", f"api/kernels/{kernel.id}")
    until(lambda: server.clusters() == {})
    # Jupyter itself may log an error of a kernel that ends while it is connected.
    traces = re.findall(
        r'(?:.*\n){12}.*File ".*/(?:hyperplane|dask_labextension|distributed)/(?:.*\n){8}',
        server.log.read_text(),
    )
    assert traces == []


def test_wrong_arguments_are_an_error_and_other_clusters_remain_when_a_server_ends(
    start_server: Callable[..., LabServer],
) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", START.format(nodes=(1, 2), name="outside") + "input()"],
        stdin=subprocess.PIPE,
    )
    try:
        server = start_server(treads=2, nprocs="many")
        with pytest.raises(Answer, match=r"^500") as caught:
            server.request("PUT", "dask/clusters")
        assert "treads=2: unknown argument" in caught.value.message
        assert "did you mean nthreads?" in caught.value.message
        until(lambda: "treads=2: unknown argument" in server.log.read_text())
        until(lambda: "outside" in server.clusters())
        assert server.clusters()["outside"]["adapt"] == {"minimum": 1, "maximum": 2}
        server.end()
        client, cluster = hyperplane.get_cluster("outside")
        assert client.submit(sum, [1, 2]).result(timeout=120) == 3
        assert cluster.sync(cluster.read_limits) == (1, 2), "the pane has changed nothing"
        client.close()
        cluster.detach()
    finally:
        program.communicate(b"\n", timeout=120)
    assert program.returncode == 0
