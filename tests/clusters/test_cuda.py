"""The cuda engine without a GPU: availability, plans and arguments."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.config
import pytest
from distributed import LocalCluster, Nanny, Worker

import hyperplane
from hyperplane.clusters.dask.cuda import engine as cuda
from hyperplane.clusters.dask.cuda import start as cuda_start
from hyperplane.clusters.dask.guarded_cluster import GuardedCluster
from hyperplane.clusters.engine import Availability
from hyperplane.errors import EngineUnavailable, RequestError
from hyperplane.platforms.local import gpus as local_gpus
from hyperplane.spec.settings import CudaSettings
from hyperplane.spec.worker import WorkerSpec

INTERFACE = Path(__file__).parents[1] / "golden" / "engines" / "cuda_interface.json"
#: As in the documentation: eight threads on two cores.
PUBLISHED: dict[str, Any] = {
    "num_workers": 1,
    "nprocs": 1,
    "nthreads": 8,
    "ram_gb_per_proc": 7,
    "cores_per_worker": 2,
    "ngpus": 1,
}
Here = Callable[..., None]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    """Set the number of GPUs and the missing packages."""

    def say(count: int, visible: str | None = None, missing: tuple[str, ...] = ()) -> None:
        if visible is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        monkeypatch.setattr(local_gpus, "_count_installed", lambda root: count)
        monkeypatch.setattr(cuda, "is_installed", lambda module: module not in missing)

    return say


class TestAvailable:
    @pytest.mark.parametrize(
        ("count", "visible", "missing", "reason"),
        [
            (0, None, (), "no NVIDIA GPU is visible"),
            (0, None, ("dask_cuda",), "no NVIDIA GPU is visible"),
            (2, "", (), "CUDA_VISIBLE_DEVICES='' hides the 2 NVIDIA GPUs of this machine"),
            (1, None, ("dask_cuda",), "it needs dask-cuda: pip install 'hyperplane[gpu]'"),
        ],
    )
    def test_says_why_not(
        self, here: Here, count: int, visible: str | None, missing: tuple[str, ...], reason: str
    ) -> None:
        here(count, visible, missing)
        usable, message = cuda.CudaEngine().available()
        assert not usable
        assert message.startswith(reason)

    def test_says_how_many(self, here: Here) -> None:
        here(4, "2,3")
        assert cuda.CudaEngine().available() == Availability(True, "2 NVIDIA GPUs on this machine")

    def test_a_start_by_name_is_refused_with_the_reason(self, here: Here) -> None:
        here(0)
        plan = hyperplane.plan_cluster(engine="cuda", **PUBLISHED)
        with pytest.raises(EngineUnavailable, match="engine cuda: no NVIDIA GPU is visible"):
            hyperplane.start(plan)


class TestAuto:
    """The local engine has no GPUs, so "auto" takes the next engine."""

    @pytest.fixture(autouse=True)
    def _both(self) -> Any:
        with dask.config.set({"hyperplane.engines.auto": ["local", "cuda"]}):
            yield

    def test_takes_it_when_gpus_are_asked_for(self, here: Here) -> None:
        here(1)
        plan = hyperplane.plan_cluster(**PUBLISHED)
        assert plan.engine == "cuda"
        assert "engine auto: cuda, 1 NVIDIA GPU on this machine" in plan.notes

    def test_takes_the_local_one_when_none_are(self, here: Here) -> None:
        here(1)
        assert hyperplane.plan_cluster(num_workers=1).engine == "local"

    def test_says_why_not(self, here: Here) -> None:
        here(0)
        with pytest.raises(EngineUnavailable, match="cuda: no NVIDIA GPU is visible"):
            hyperplane.plan_cluster(**PUBLISHED)


class TestFaults:
    def faults(self, **arguments: Any) -> list[str]:
        with pytest.raises(RequestError) as caught:
            hyperplane.plan_cluster(engine="cuda", **{**PUBLISHED, **arguments})
        return [str(fault) for fault in caught.value.faults]

    def test_no_gpu_asked_for(self, here: Here) -> None:
        here(1)
        [fault] = self.faults(ngpus=0, cores_per_worker=8)
        assert fault.startswith("ngpus = 0: expected at least 1")

    def test_more_than_this_machine_has(self, here: Here) -> None:
        here(5)
        [fault] = self.faults(num_workers=3, ngpus=2, local_fit="exact")
        assert fault == (
            "num_workers x ngpus = 3 x 2 = 6: expected at most 5, the GPUs of this "
            "machine; num_workers=2 fits here"
        )

    def test_more_than_this_process_may_use(self, here: Here) -> None:
        here(8, "5")
        [fault] = self.faults(ngpus=4, local_fit="exact")
        assert fault == (
            "num_workers x ngpus = 1 x 4 = 4: expected at most 1, the GPUs of "
            "CUDA_VISIBLE_DEVICES=5; num_workers=1, ngpus=1 fits here"
        )

    def test_settings_whose_packages_are_missing(self, here: Here) -> None:
        here(1, missing=("dask_cudf", "cudf", "rmm"))
        found = self.faults(engine_options={"rmm_pool_gb": 4, "enable_cudf_spill": True})
        assert [fault.split(" = ")[0].rpartition(".")[2] for fault in found] == [
            "dataframe_backend",
            "enable_cudf_spill",
            "rmm_pool_gb",
        ]
        assert all("is not installed; pip install 'hyperplane[gpu]'" in fault for fault in found)

    def test_a_machine_without_gpus_can_plan_for_another(self, here: Here) -> None:
        here(0, missing=("dask_cudf",))
        assert hyperplane.plan_cluster(engine="cuda", **{**PUBLISHED, "ngpus": 8}).engine == "cuda"

    @pytest.mark.parametrize(
        ("options", "fault"),
        [
            ({"rmm_pool_gb": 1, "rmm_async": True}, "rmm_async = True: expected no value"),
            ({"rmm_pool_fraction": 0.5, "rmm_pool_gb": 1}, "rmm_pool_gb = 1: expected no value"),
            ({"rmm_libraries": ["cupy"]}, "rmm_libraries = ['cupy']: expected empty without"),
            ({"rmm_pool_fraction": True}, "rmm_pool_fraction = True: expected a number"),
            ({"device_memory_limit": 80}, "device_memory_limit = 80: expected more than 0 and"),
            ({"local_directory": "/x\nrm"}, "the path of a folder, without line breaks"),
            (
                {"jit_unspill": True},
                "jit_unspill = True: no such key; expected one of idle",
            ),
        ],
    )
    def test_impossible_settings_are_faults(
        self, here: Here, options: dict[str, Any], fault: str
    ) -> None:
        here(1)
        [found] = self.faults(engine_options=options)
        assert fault in found


class TestNodeFit:
    @pytest.mark.parametrize(
        ("count", "asked", "given"),
        [
            (1, (2, 1), (1, 1)),
            (5, (3, 2), (2, 2)),
            (1, (1, 4), (1, 1)),
            (3, (2, 4), (1, 3)),
            (4, (2, 2), (2, 2)),
            (0, (2, 4), (2, 4)),
        ],
    )
    def test_as_many_as_there_are(
        self, here: Here, count: int, asked: tuple[int, int], given: tuple[int, int]
    ) -> None:
        here(count)
        nodes, gpus = asked
        plan = hyperplane.plan_cluster(
            engine="cuda", **{**PUBLISHED, "num_workers": nodes, "ngpus": gpus}
        )
        assert (plan.nodes, plan.worker.ngpus) == given
        assert plan.worker.nprocs == plan.worker.ngpus
        assert plan.worker.ram_gb_per_proc == 7
        assert ("this machine gives" in plan.fit_note) == (asked != given)

    def test_the_published_call_on_one_gpu(self, here: Here) -> None:
        here(1)
        plan = hyperplane.plan_cluster(
            engine="cuda", scheduler_deploy_mode="local", **{**PUBLISHED, "num_workers": 2}
        )
        assert plan.fit_note == (
            "asked 2 nodes x 1 GPU; this machine gives 1 node x 1 GPU (1 GPU for this process)"
        )
        assert plan.dask_workers == 1


class TestLayout:
    def test_one_process_per_gpu_is_unchanged(self) -> None:
        asked = WorkerSpec.from_gb(4, 8, 24, 6, ngpus=4)
        assert cuda.CudaEngine().layout(asked) == (asked, "")

    @pytest.mark.parametrize(
        ("nprocs", "ngpus", "ram"),
        [(15, 1, 10.5), (15, 2, 5.25), (1, 4, 0.7)],
    )
    def test_other_layouts_become_one_process_per_gpu_with_a_note(
        self, nprocs: int, ngpus: int, ram: float
    ) -> None:
        asked = WorkerSpec.from_gb(nprocs, 3, 0.7, 15, ngpus=ngpus)
        worker, note = cuda.CudaEngine().layout(asked)
        assert worker == WorkerSpec.from_gb(ngpus, 3, ram, 15, ngpus=ngpus)
        assert str(asked) in note
        assert str(worker) in note


class TestArguments:
    def arguments(self, here: Here, **options: Any) -> dict[str, Any]:
        here(4)
        plan = hyperplane.plan_cluster(
            engine="cuda", name="gpus", engine_options=options, **{**PUBLISHED, "num_workers": 2}
        )
        settings = plan.settings
        assert isinstance(settings, CudaSettings)
        worker = cuda.CudaEngine().layout(plan.worker)[0]
        return cuda_start.cluster_arguments(plan, worker, settings, ("3", "1", "0"), "/scratch")

    def test_every_argument_is_a_parameter_of_dask_cuda_or_dask(self, here: Here) -> None:
        known = {
            *json.loads(INTERFACE.read_text(encoding="utf-8"))["LocalCUDACluster"],
            *(
                name
                for of_dask in (LocalCluster, Nanny, Worker, GuardedCluster)
                for name in inspect.signature(of_dask.__init__).parameters  # type: ignore[misc]
            ),
            # Methods of our subclasses.
            *("settings", "environ", "import_meanwhile"),
        }
        assert set(self.arguments(here)) - known == set()

    def test_follow_from_the_plan_and_the_settings(self, here: Here) -> None:
        found = self.arguments(
            here, rmm_pool_fraction=1, rmm_libraries=["cupy"], device_memory_limit=None
        )
        expected = {
            "CUDA_VISIBLE_DEVICES": ["3", "1", "0"],
            "n_workers": 2,
            "threads_per_worker": 8,
            "memory_limit": 7_000_000_000,
            "rmm_pool_size": 1.0,
            "rmm_async": False,
            "rmm_allocator_external_lib_list": ["cupy"],
            "device_memory_limit": None,
            "enable_cudf_spill": False,
            "protocol": "tcp",
            "host": "127.0.0.1",
            "dashboard_address": "127.0.0.1:0",
            "local_directory": "/scratch",
        }
        assert {name: found[name] for name in expected} == expected
        assert isinstance(found["rmm_pool_size"], float), "a whole 1 is one byte to dask-cuda"
        assert found["settings"]["dataframe.backend"] == "cudf"
        assert found["environ"]["POLARS_MAX_THREADS"] == "8"

    def test_a_pool_in_gb_is_bytes(self, here: Here) -> None:
        size = self.arguments(here, rmm_pool_gb=2.5)["rmm_pool_size"]
        assert (size, type(size)) == (2_500_000_000, int)
