"""The cuda engine with the real dask-cuda, if that is installed.

Without a GPU, dask-cuda's own test switch skips what needs one (RMM's pool, spilling from the GPU,
CPU affinity). The rest is real: its cluster class and our subclass, its nannies, one process for
each pretended GPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask.config
import psutil
import pytest
from contract import DaskEngineContract
from services import restart

import hyperplane
from hyperplane.clusters import records
from hyperplane.errors import StartFailed, StartTimeout
from hyperplane.platforms.local import gpus as local_gpus
from hyperplane.platforms.local.gpus import Gpus

pytest.importorskip("dask_cuda", reason="dask-cuda is not installed: pip install 'hyperplane[gpu]'")

SMALL: dict[str, Any] = {
    "num_workers": 2,
    "nprocs": 1,
    "nthreads": 1,
    "ram_gb_per_proc": 0.6,
    "ngpus": 1,
    "timeout": 200,
    "engine_options": {"device_memory_limit": None, "dataframe_backend": "pandas"},
}


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three GPUs that dask-cuda does not touch."""
    if local_gpus.detect_gpus().installed:
        # dask-cuda asks the driver about each of them; test_cuda_gpu.py uses the real one.
        pytest.skip("this machine has a GPU")
    monkeypatch.setenv("DASK_CUDA_TEST_DISABLE_DEVICE_SPECIFIC", "1")
    monkeypatch.setenv("RAPIDS_NO_INITIALIZE", "True")  # dask-cuda sets it; it is undone here
    monkeypatch.setattr(local_gpus, "detect_gpus", lambda: Gpus(3, ("0", "1", "2"), None))


def plan(**options: Any) -> hyperplane.ClusterPlan:
    return hyperplane.plan_cluster(**{"engine": "cuda", **SMALL, **options})


@pytest.mark.usefixtures("pretended")
class TestCudaEngine(DaskEngineContract):
    engine = "cuda"
    small = SMALL

    def check_terminate(self, cluster: Any, expected: float) -> None:
        found = {
            nanny.memory_manager.memory_terminate_fraction for nanny in cluster.workers.values()
        }
        assert found == {expected}


@pytest.mark.cluster
@pytest.mark.usefixtures("pretended")
class TestWithoutDevices:
    def test_each_worker_has_its_gpu_first_and_our_variables_and_settings(self) -> None:
        def seen() -> tuple[str, str | None, str]:
            backend = dask.config.get("dataframe.backend")
            return os.environ["CUDA_VISIBLE_DEVICES"], os.environ.get("POLARS_MAX_THREADS"), backend

        client, cluster = hyperplane.start(plan(nthreads=3))
        with cluster, client:
            expected = [("0,1,2", "3", "pandas"), ("1,2,0", "3", "pandas")]
            assert sorted(client.run(seen).values()) == expected
            restart(client)
            assert sorted(client.run(seen).values()) == expected
            assert set(client.nthreads().values()) == {3}

    def test_the_dataframe_backend_applies_to_the_client_while_it_is_open(self) -> None:
        def backend() -> str:
            return str(dask.config.get("dataframe.backend"))

        options = {**SMALL["engine_options"], "dataframe_backend": "cudf"}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("hyperplane.clusters.dask.cuda.engine.is_installed", lambda module: True)
            client, cluster = hyperplane.start(plan(engine_options=options))
        with cluster, client:
            assert set(client.run(backend).values()) == {backend()} == {"cudf"}
        assert backend() == "pandas"

    def test_more_than_the_gpus_is_refused(self) -> None:
        client, cluster = hyperplane.start(plan())
        with cluster, client:
            cluster.scale(3)
            client.wait_for_workers(3, timeout=120)
            with pytest.raises(ValueError, match="visible devices"):
                cluster.scale(4)

    def test_listens_on_loopback_only(self) -> None:
        client, cluster = hyperplane.start(plan())
        with cluster, client:
            assert listening() == {"127.0.0.1"}

    @pytest.mark.parametrize(
        ("preload", "timeout", "error", "words"),
        [
            ("import os; os._exit(3)", 60, StartFailed, "everything was closed again"),
            (
                "import time; time.sleep(30)",
                3,
                StartTimeout,
                "not all of 2 worker processes connected",
            ),
        ],
    )
    def test_a_start_that_fails_leaves_nothing(
        self, tmp_path: Path, preload: str, timeout: float, error: type[Exception], words: str
    ) -> None:
        bad = tmp_path / "bad.py"
        bad.write_text(f"def dask_setup(worker):\n    {preload}\n", encoding="utf-8")
        before = set(psutil.Process().children(recursive=True))
        with (
            dask.config.set({"distributed.worker.preload": [str(bad)]}),
            pytest.raises(error, match=words),
        ):
            hyperplane.start(plan(timeout=timeout))
        left = set(psutil.Process().children(recursive=True)) - before
        assert [one for one in left if "resource_tracker" not in " ".join(one.cmdline())] == []
        assert listening() == set()
        assert records.read_all() == []
        assert not list(records.private_folder().iterdir())


OWNER = """
import os, time
from hyperplane.platforms.local import gpus as local_gpus
import hyperplane

def hold():
    sum(range(10**12))  # in C: the interpreter is held

if __name__ == "__main__":
    local_gpus.detect_gpus = lambda: local_gpus.Gpus(2, ("0", "1"), None)
    client, cluster = hyperplane.start(hyperplane.plan_cluster(engine="cuda", **SMALL))
    pids = list(client.run(os.getpid).values())
    busy = client.map(lambda n: hold(), range(2), pure=False)
    time.sleep(0.5)  # so that most often they hold it when the owner is killed
    print(*pids, flush=True)
    time.sleep(600)
"""


@pytest.mark.cluster
@pytest.mark.usefixtures("pretended")
def test_workers_end_when_their_owner_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "owner.py"
    script.write_text(OWNER.replace("SMALL", repr(SMALL)), encoding="utf-8")
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        workers = [psutil.Process(int(pid)) for pid in owner.stdout.readline().split()]
        assert len(workers) == 2
        owner.kill()
    _, alive = psutil.wait_procs(workers, timeout=120)
    assert alive == []


def listening() -> set[str]:
    """Return the addresses that this process and its children listen on."""
    me = psutil.Process()
    return {
        connection.laddr.ip
        for one in [me, *me.children(recursive=True)]
        for connection in one.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
