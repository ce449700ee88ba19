"""GPUs of Ray's worker nodes; a program in place of nvidia-smi reports the GPUs of this machine."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import dask.config
import pytest
from fake_gpus import read_devices, two_gpus
from services import until

import hyperplane
from hyperplane import config, ray_common
from hyperplane.clusters.local_nodes import engine
from hyperplane.clusters.ray.gpus import choose_gpus
from hyperplane.clusters.ray.slurm.engine import SlurmRayEngine
from hyperplane.errors import RequestError, StartFailed
from hyperplane.platforms.local import gpus as local_gpus
from hyperplane.platforms.local.gpus import Gpus
from hyperplane.spec.capacity import MachineCapacity
from hyperplane.spec.request import ClusterRequest

#: A worker node with GPUs that needs no more memory than tests have.
NODE: dict[str, Any] = {
    "framework": "ray", "nprocs": 1, "nthreads": 1, "cores_per_worker": 1, "ram_gb_per_proc": 0.5,
}  # fmt: skip


def set_gpus(monkeypatch: pytest.MonkeyPatch, count: int, limit: str | None = None) -> None:
    visible = local_gpus._parse_visible(limit, count) if limit is not None else None
    names = visible if visible is not None else tuple(map(str, range(count)))
    monkeypatch.setattr(local_gpus, "detect_gpus", lambda: Gpus(count, names, limit))
    monkeypatch.setattr("hyperplane.clusters.ray.gpus.detect_gpus", local_gpus.detect_gpus)


class TestPlans:
    @pytest.mark.parametrize(
        ("arguments", "nodes", "each"),
        [
            ({"num_workers": 1, "ngpus": 1}, 1, 1),
            ({"num_workers": 2, "ngpus": 1}, 2, 1),
            ({"num_workers": 9, "ngpus": 1}, 4, 1),
            ({"num_workers": 3, "ngpus": 2}, 2, 2),
            ({"num_workers": 1, "ngpus": 9}, 1, 4),
            ({"num_workers": 1, "nprocs": 2, "ngpus": 4}, 2, 2),
            ({"num_workers": 3, "nprocs": 2, "ngpus": 6}, 1, 3),
        ],
    )
    def test_worker_nodes_are_as_many_as_the_gpus_suffice_for(
        self, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], nodes: int, each: int
    ) -> None:
        set_gpus(monkeypatch, 4)
        large = MachineCapacity(cores=64, ram=10**12)
        monkeypatch.setattr(engine, "read_capacity", lambda reserve: large)
        plan = hyperplane.plan_cluster(**{**NODE, "engine": "ray:local", **arguments})
        assert plan.dask_workers == nodes
        assert plan.worker.ngpus == plan.worker.nprocs * each
        assert bool(plan.fit_note) == (arguments["num_workers"] * arguments["ngpus"] > 4)

    def test_fewer_cores_than_gpus(self, monkeypatch: pytest.MonkeyPatch) -> None:
        set_gpus(monkeypatch, 4)
        small = MachineCapacity(cores=3, ram=10**12)
        monkeypatch.setattr(engine, "read_capacity", lambda reserve: small)
        plan = hyperplane.plan_cluster(**NODE, engine="ray:local", num_workers=9, ngpus=1)
        assert (plan.dask_workers, plan.worker.ngpus) == (3, 3)
        gpus, cores = plan.fit_note.split("; asked ")
        assert gpus.startswith("asked 9 nodes x 1 GPU; this machine gives 4 nodes x 1 GPU")
        assert cores.startswith("9 nodes x 1 process")
        assert "(9 threads, 4.5 GB)" in cores
        assert "3 cores" in cores

    @pytest.mark.parametrize(
        ("count", "limit", "reason"),
        [(0, None, "no NVIDIA GPU is visible"), (2, "", "hides the 2 NVIDIA GPUs")],
    )
    def test_a_machine_without_gpus_refuses_them(
        self, monkeypatch: pytest.MonkeyPatch, count: int, limit: str | None, reason: str
    ) -> None:
        set_gpus(monkeypatch, count, limit)
        with pytest.raises(RequestError, match=f"ngpus = 1: expected 0: .*{reason}"):
            hyperplane.plan_cluster(**NODE, engine="ray:local", num_workers=1, ngpus=1)

    def test_an_exact_request_for_too_many_is_refused(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        set_gpus(monkeypatch, 8, "3,5")
        request = {**NODE, "engine": "ray:local", "num_workers": 3, "ngpus": 1}
        message = "3 x 1 = 3: expected at most 2, the GPUs of CUDA_VISIBLE_DEVICES=3,5"
        with pytest.raises(RequestError, match=message):
            hyperplane.plan_cluster(**request, local_fit="exact")
        with pytest.raises(RequestError, match=message):
            hyperplane.plan_cluster(**request, engine_options={"fit": "exact"})

    @pytest.mark.parametrize("name", ["ray:local", "ray:ssh", "ray:slurm"])
    def test_worker_nodes_of_a_machine_have_equal_numbers(self, name: str) -> None:
        request = {**NODE, "engine": name, "num_workers": 1, "nprocs": 2, "cores_per_worker": 2}
        options = {"hosts": ["one"]} if name == "ray:ssh" else {}
        with pytest.raises(RequestError, match="ngpus = 3: expected a multiple of nprocs = 2"):
            hyperplane.plan_cluster(**request, ngpus=3, engine_options=options)

    def test_a_job_requests_the_gpus_of_one_worker_node(self) -> None:
        plan = hyperplane.plan_cluster(
            **{**NODE, "nprocs": 2, "cores_per_worker": 2},
            engine="ray:slurm", num_workers=3, ngpus=4,
        )  # fmt: skip
        assert "#SBATCH --gres=gpu:2\n" in SlurmRayEngine().render(plan)


def test_worker_nodes_of_a_machine_have_different_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    set_gpus(monkeypatch, 8, "7,5,3,GPU-1")
    assert choose_gpus(2, 0) == ["7", "5"]
    assert choose_gpus(2, 1) == ["3", "GPU-1"]
    with pytest.raises(RuntimeError, match=r"3 GPUs beside 3 of others, .* has 4 GPUs"):
        choose_gpus(3, 1)


def test_the_documented_argument_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    set_gpus(monkeypatch, 0)
    with pytest.raises(RequestError, match="n_gpus = 1: expected 0"):
        ray_common.initialize_ray_cluster(1, 1, 0.5, n_gpus=1)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[ClusterRequest]:
    """The requests of calls that start nothing."""
    found: list[ClusterRequest] = []
    monkeypatch.setattr(
        ray_common, "_initialize", lambda planner, *_: found.append(planner.request)
    )
    return found


def read_size(request: ClusterRequest) -> tuple[int, float, int]:
    return request.nthreads, request.ram_gb_per_proc, request.ngpus


@pytest.mark.parametrize(
    ("gpus", "size"),
    [(1, (3, 12.0, 1)), (2, (46, 175.0, 2)), (8, (94, 675.0, 8)), (0, (15, 12, 0))],
)
def test_with_gpus_a_pool_gives_cores_and_memory(
    requests: list[ClusterRequest], gpus: int, size: tuple[int, float, int]
) -> None:
    with dask.config.set({"hyperplane.gpu_pools.enabled": True}):
        ray_common.initialize_ray_cluster(2, 15, 12, gpus)
        assert read_size(requests[0]) == size
        if gpus:  # ignored values are not checked
            ray_common.initialize_ray_cluster(2, 0, -1, n_gpus=gpus)
            assert read_size(requests[1]) == size


@pytest.mark.parametrize(("enabled", "gpus"), [(False, 1), (True, 9)])
def test_without_a_pool_of_gpus_the_arguments_give_cores_and_memory(
    requests: list[ClusterRequest], enabled: bool, gpus: int
) -> None:
    with dask.config.set({"hyperplane.gpu_pools.enabled": enabled}):
        ray_common.initialize_ray_cluster(2, 4, 8, gpus)
    assert read_size(requests[0]) == (4, 8, gpus)


def test_every_size_of_a_node_can_be_started_quickly(requests: list[ClusterRequest]) -> None:
    with dask.config.set({"hyperplane.gpu_pools.enabled": True}):
        pools = config.pools().values()
        for pool in pools:
            ray_common.quickstart_ray(1, pool.name)
    assert [read_size(each) for each in requests] == [
        (pool.whole_cores, pool.allocatable_ram_gb, pool.gpus) for pool in pools
    ]


@pytest.mark.ray
@pytest.mark.cluster
@pytest.mark.slow
def test_tasks_see_the_gpus_of_their_worker_node(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    with two_gpus(tmp_path):
        cluster = ray_common.initialize_ray_cluster(1, 1, 0.5, n_gpus=1)
        try:
            ray.init(logging_level="ERROR", log_to_driver=False)
            until(lambda: ray.cluster_resources().get("GPU") == 1)
            assert read_devices(1) == [("0", ["0"])]
            ray_common.get_ray_cluster(extra_workers=1)
            until(lambda: ray.cluster_resources().get("GPU") == 2)
            assert sorted(read_devices(2)) == [("0", ["0"]), ("1", ["1"])]
            plan = hyperplane.plan_cluster(**NODE, engine="ray:local", num_workers=1, ngpus=1)
            with pytest.raises(StartFailed, match=r"needs 1 GPU; clusters of Ray .* leave 0"):
                hyperplane.start(plan)
            with pytest.raises(RequestError, match="extra_workers = 1"):
                ray_common.get_ray_cluster(extra_workers=1)
            name, pid = next(iter(cluster.worker_pids.items()))
            os.kill(pid, signal.SIGKILL)
            until(lambda: cluster.worker_pids.get(name, pid) != pid)
            # Until Ray notices the end of the first one, it may place actors there.
            until(lambda: sum(node["Alive"] for node in ray.nodes()) == 3)
            assert sorted(read_devices(2)) == [("0", ["0"]), ("1", ["1"])]
            assert "CUDA_VISIBLE_DEVICES" not in os.environ
        finally:
            cluster.close()
