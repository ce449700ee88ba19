"""GPUs on every engine that supports them, and GPU pools that a site can enable."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

import dask.config
import pytest
import yaml
from distributed.security import Security

import hyperplane
from hyperplane import config
from hyperplane.clusters import registry, start_lines
from hyperplane.clusters.dask.gateway.options import requested_options
from hyperplane.clusters.dask.ssh import gpus as ssh_gpus
from hyperplane.errors import ConfigError, DoesNotFit, RequestError

#: The call of the documentation.
PUBLISHED: dict[str, Any] = {
    "ngpus": 1,
    "nprocs": 1,
    "nthreads": 8,
    "ram_gb_per_proc": 7,
    "cores_per_worker": 2,
    "num_workers": 2,
    "scheduler_deploy_mode": "local",
}
OPTIONS: dict[str, dict[str, Any]] = {
    "kubernetes": {"image": "example.com/image:1"},
    "gateway": {
        "address": "https://gateway.example.com",
        "plan_options": {"worker_gpus": "ngpus", "worker_cores": "nthreads"},
    },
    "ssh": {"hosts": ["a", "b"]},
    "slurm": {},
}
ENABLED = {"hyperplane.gpu_pools.enabled": True}


def _plan(engine: str, **arguments: Any) -> hyperplane.ClusterPlan:
    asked = {**PUBLISHED, "name": "mine", **arguments}
    return hyperplane.plan_cluster(**asked, engine=engine, engine_options=OPTIONS[engine])


def _rendered(plan: hyperplane.ClusterPlan) -> str:
    text: str = registry.load(plan.engine).render(plan)  # type: ignore[attr-defined]
    return text


class TestPools:
    def test_gpu_pools_are_added_when_a_site_enables_them(self) -> None:
        without = set(config.pools())
        assert not any(pool.gpus for pool in config.pools().values())
        with dask.config.set(ENABLED):
            added = set(config.pools()) - without
            assert len(added) == len(dask.config.get("hyperplane.gpu_pools.pools"))
            assert all(hyperplane.get_pool(name).gpus for name in added)
            assert hyperplane.get_pool("POOL_gpu_4_16").gpus == 1
            assert config.faults(registry.ENGINES) == []
        with pytest.raises(hyperplane.UnknownPool):
            hyperplane.get_pool("gpu_4_16")

    def test_gpu_pools_do_not_change_requests_without_gpus(self) -> None:
        calls = [(cores, ram) for cores in (1, 3.5, 7, 15, 28, 90) for ram in (1, 7, 12, 27, 110)]
        before = [hyperplane.closest_pool(*call) for call in calls]
        sized = [hyperplane.size_cluster(f"{data}GB").pool for data in (1, 3, 10, 100)]
        with dask.config.set(ENABLED):
            assert [hyperplane.closest_pool(*call) for call in calls] == before
            after = [hyperplane.size_cluster(f"{data}GB").pool for data in (1, 3, 10, 100)]
        assert after == sized

    @pytest.mark.parametrize(
        ("asked", "pool"),
        [
            ({}, "gpu_4_16"),
            ({"ram_gb_per_proc": 20}, "gpu_8_32"),
            ({"ngpus": 4, "nprocs": 4}, "gpu_48_192"),
            ({"ngpus": 8, "nprocs": 8}, "gpu_96_768"),
        ],
    )
    def test_the_published_call_plans_with_them(self, asked: Any, pool: str) -> None:
        with pytest.raises(DoesNotFit, match="no pool has one"):
            _plan("kubernetes", **asked)
        with dask.config.set(ENABLED):
            plan = _plan("kubernetes", **asked)
            assert plan.pool is not None
            assert plan.pool.name == pool
            assert _plan("kubernetes", **asked, pool=pool).worker == plan.worker

    def test_a_site_changes_a_gpu_pool_and_adds_another(self) -> None:
        own = {"cores": 8, "ram_gb": 61, "allocatable_cores": 7, "allocatable_ram_gb": 55}
        settings = {
            **ENABLED,
            "hyperplane.gpu_pools.pools.pool_gpu_4_16.price_per_hour": 0.5,
            "hyperplane.gpu_pools.pools.pool_gpu_8_61": {**own, "gpus": 1},
        }
        with dask.config.set(settings):
            assert hyperplane.get_pool("gpu_4_16").price_per_hour == 0.5
            assert hyperplane.get_pool("gpu_8_61").gpus == 1

    @pytest.mark.parametrize(
        ("key", "value", "where"),
        [
            ("enabled", "yes", "enabled"),
            ("enable", True, "enable"),
            ("pools", [], "pools"),
            ("pools.pool_gpu_4_16.gpus", -1, "pools.pool_gpu_4_16.gpus"),
        ],
    )
    def test_a_fault_is_named(self, key: str, value: Any, where: str) -> None:
        with dask.config.set({**ENABLED, f"hyperplane.gpu_pools.{key}": value}):
            with pytest.raises(ConfigError) as caught:
                config.pools()
            assert [fault.where for fault in caught.value.faults] == [
                f"hyperplane.gpu_pools.{where}"
            ]

    def test_a_section_that_is_not_a_mapping_is_a_fault(self) -> None:
        match = "True: expected a mapping of enabled and pools"
        with (
            dask.config.set({"hyperplane.gpu_pools": True}),
            pytest.raises(ConfigError, match=match),
        ):
            config.pools()


class TestEngines:
    @pytest.fixture(autouse=True)
    def _pools(self) -> Any:
        with dask.config.set(ENABLED):
            yield

    @pytest.mark.parametrize("engine", list(OPTIONS))
    def test_the_published_call_is_one_process_on_each_gpu(self, engine: str) -> None:
        plan = _plan(engine)
        assert (plan.dask_workers, plan.worker.nprocs, plan.worker.ngpus) == (2, 1, 1)
        assert plan.fit_note == ""

    @pytest.mark.parametrize("engine", list(OPTIONS))
    def test_processes_are_reduced_to_one_per_gpu(self, engine: str) -> None:
        plan = _plan(engine, nprocs=15, ram_gb_per_proc=0.7, cores_per_worker=15)
        assert (plan.dask_workers, plan.worker.ram_gb_per_proc) == (2, 10.5)
        assert plan.fit_note.startswith("one worker process runs on each GPU: asked 15 processes")

    @pytest.mark.parametrize("engine", list(OPTIONS))
    def test_without_nprocs_one_process_is_planned_for_each_gpu(self, engine: str) -> None:
        asked = {"ngpus": 1, "nthreads": 12, "ram_gb_per_proc": 80, "cores_per_worker": 12}
        options = OPTIONS[engine]
        plan = hyperplane.plan_cluster(
            num_workers=1, **asked, engine=engine, engine_options=options
        )
        assert (plan.dask_workers, plan.worker.ram_gb_per_proc, plan.worker.nthreads) == (1, 80, 12)
        assert plan.asked == plan.worker
        assert plan.fit_note == ""
        assert plan.pool is not None
        assert plan.pool.name == "gpu_48_192"

    def test_memory_that_was_not_given_is_that_of_the_default_node(self) -> None:
        options = OPTIONS["kubernetes"]
        for gpus, ram in ((1, 10.5), (4, 2.625)):
            plan = hyperplane.plan_cluster(ngpus=gpus, engine="kubernetes", engine_options=options)
            assert (plan.worker.nprocs, plan.worker.ram_gb_per_proc) == (gpus, ram)

    def test_a_pool_fills_in_the_memory_of_one_process_per_gpu(self) -> None:
        options = OPTIONS["kubernetes"]
        plan = hyperplane.plan_cluster(
            ngpus=1, pool="gpu_8_32", engine="kubernetes", engine_options=options
        )
        assert (plan.worker.nprocs, plan.worker.ram_gb_per_proc) == (1, 27)

    def test_a_pod_of_kubernetes_runs_dask_cuda(self) -> None:
        manifest = yaml.safe_load(_rendered(_plan("kubernetes")))
        [container] = manifest["spec"]["worker"]["spec"]["containers"]
        assert container["args"] == [
            *("dask", "cuda", "worker", "--name", "$(DASK_WORKER_NAME)", "--nthreads", "8"),
            *("--memory-limit", "7000000000", "--dashboard-address", ":8788"),
        ]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
        assert manifest["spec"]["worker"]["replicas"] == 2

    def test_a_job_of_slurm_runs_dask_cuda(self) -> None:
        text = _rendered(_plan("slurm"))
        assert "#SBATCH --gres=gpu:1" in text
        assert " -m dask cuda worker tls://SCHEDULER:PORT \\\n" in text

    def test_the_options_that_are_used_are_those_of_dask_cuda(self) -> None:
        from test_cuda import INTERFACE  # type: ignore[import-not-found,unused-ignore]

        known = yaml.safe_load(INTERFACE.read_text())["dask cuda worker"]
        manifest = yaml.safe_load(_rendered(_plan("kubernetes")))
        [container] = manifest["spec"]["worker"]["spec"]["containers"]
        words = [word for word in container["args"] if word.startswith("--")]
        words += [
            line.split()[0]
            for line in _rendered(_plan("slurm")).splitlines()
            if line.startswith("  --")
        ]
        assert len(words) > 10
        assert set(words) <= known.keys()

    def test_an_option_of_a_gateway_receives_the_gpus(self) -> None:
        assert requested_options(_plan("gateway"))["worker_gpus"] == 1
        assert "worker_gpus" not in requested_options(_plan("gateway", ngpus=0, nthreads=1))
        with pytest.raises(RequestError) as caught:
            hyperplane.plan_cluster(
                **PUBLISHED, engine="gateway", engine_options={"address": "https://g.example.com"}
            )
        [fault] = caught.value.faults
        assert (fault.where, fault.allowed) == (
            "ngpus",
            "no value, because no option of the gateway receives it",
        )
        assert "plan_options, as OPTION: ngpus" in fault.advice

    @pytest.mark.process
    def test_hosts_receive_the_number_of_gpus(self) -> None:
        document = yaml.safe_load(_rendered(_plan("ssh", ngpus=2, nprocs=2)))
        assert document["workers"]["GPUs of each"] == document["workers"]["processes of each"] == 2


class TestDeployMode:
    @pytest.fixture(autouse=True)
    def _pools(self) -> Any:
        with dask.config.set(ENABLED):
            yield

    @pytest.mark.parametrize(
        ("engine", "mode", "line"),
        [
            (
                "kubernetes",
                "local",
                "scheduler_deploy_mode='local' is changed to 'remote' with engine kubernetes: the "
                "operator of dask-kubernetes starts the scheduler in a pod",
            ),
            (
                "gateway",
                "local",
                "scheduler_deploy_mode='local' is changed to 'remote' with engine gateway: the "
                "gateway starts the scheduler beside the workers",
            ),
            (
                "slurm",
                "remote",
                "scheduler_deploy_mode='remote' is changed to 'local' with engine slurm: the "
                "scheduler runs in this process, and the jobs connect to it",
            ),
        ],
    )
    def test_an_unsupported_deploy_mode_is_changed_with_the_reason(
        self, engine: str, mode: str, line: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        plan = _plan(engine, scheduler_deploy_mode=mode)
        assert plan.alerts == (line,)
        assert plan.request.scheduler_deploy_mode != mode
        start_lines.print_start_lines(plan)
        shown = capsys.readouterr()
        assert shown.err == f"👉 Hyperplane: {line}\n"
        assert ("Creating scheduler pod" in shown.out) == (engine != "slurm")

    def test_no_note_if_the_mode_was_not_passed(self) -> None:
        arguments = {k: v for k, v in PUBLISHED.items() if k != "scheduler_deploy_mode"}
        plan = hyperplane.plan_cluster(**arguments, engine="slurm")
        assert plan.alerts == ()


class Fake(ModuleType):
    """The part of dask-cuda that a host uses."""

    def __init__(self, count: int) -> None:
        super().__init__("dask_cuda")
        self.__spec__ = object()  # type: ignore[assignment]
        utils = ModuleType("dask_cuda.utils")
        utils.get_n_gpus = lambda: count  # type: ignore[attr-defined]
        self.modules = {"dask_cuda": self, "dask_cuda.utils": utils}

    class CUDAWorker:
        """Records its arguments, and has as many nannies as GPUs are visible."""

        def __init__(self, scheduler: str, **options: Any) -> None:
            visible = os.environ[ssh_gpus.VARIABLE].split(",")
            self.nannies = [(scheduler, gpu, options) for gpu in visible]


class TestHost:
    @pytest.fixture
    def fake(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        def install(count: int, limit: str | None = None) -> None:
            for name, module in Fake(count).modules.items():
                monkeypatch.setitem(sys.modules, name, module)
            monkeypatch.setenv(ssh_gpus.VARIABLE, limit or "")
            if limit is None:
                monkeypatch.delenv(ssh_gpus.VARIABLE)

        return install

    @pytest.mark.parametrize(
        ("count", "limit", "place", "taken"),
        [
            (4, None, 0, ["0", "1"]),
            (4, None, 1, ["2", "3"]),
            (0, "GPU-a, GPU-b,7,6", 1, ["7", "6"]),
        ],
    )
    def test_each_node_takes_different_gpus(
        self, fake: Any, count: int, limit: str | None, place: int, taken: list[str]
    ) -> None:
        fake(count, limit)
        options = {"nthreads": 8, "protocol": "tls://"}
        request = {"ngpus": 2, "place": place, "names": ["node-3-0", "node-3-1"]}
        request.update({"scheduler": "tls://s:1", "options": options})
        assert ssh_gpus.gpu_fault(request) == ""
        security = Security()
        found: list[Any] = ssh_gpus.nannies(request, security)
        assert [gpu for _, gpu, _ in found] == taken
        assert found[0][0] == "tls://s:1"
        assert found[0][2] == {**options, "name": "node-3", "security": security}

    def test_missing_gpus_and_packages_of_a_host_are_named(
        self, fake: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        request: dict[str, Any] = {"ngpus": 1, "place": 1}
        monkeypatch.setattr(ssh_gpus, "is_installed", lambda name: False)
        assert "pip install 'hyperplane[gpu]'" in ssh_gpus.gpu_fault(request)
        monkeypatch.undo()
        fake(1)
        assert ssh_gpus.gpu_fault({"ngpus": 1, "place": 0}) == ""
        fault = ssh_gpus.gpu_fault(request)
        assert fault.startswith("the node needs 1 GPU in addition to 1 of other nodes")
        assert "but the host has 1 GPU for this user" in fault
        assert ssh_gpus.gpu_fault({"ngpus": 0, "place": 0}) == ""
        assert ssh_gpus.gpu_fault({}) == ""
