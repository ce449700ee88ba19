"""The cuda engine on a real GPU; one is enough.

Needs the packages of the extra ``gpu``; tests of missing packages are skipped.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import pandas as pd
import pytest
from distributed import Client
from services import restart

import hyperplane
from hyperplane import MemoryPolicy
from hyperplane.clusters import registry
from hyperplane.demo import data
from hyperplane.platforms.local import gpus as local_gpus

USABLE, REASON = registry.load("cuda").available()
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not USABLE or not local_gpus.detect_gpus().visible, reason=REASON),
]

ONE: dict[str, Any] = {
    "engine": "cuda",
    "num_workers": 1,
    "nprocs": 1,
    "nthreads": 2,
    "ram_gb_per_proc": 8,
    "ngpus": 1,
    "timeout": 120,
}
PANDAS = {"dataframe_backend": "pandas"}


def started(**options: Any) -> Any:
    return hyperplane.initialize_cluster(**{**ONE, **options})


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A client of a cluster with cuDF as the backend of dataframes."""
    pytest.importorskip("dask_cudf")
    client, cluster = started()
    with cluster, client:
        yield client


def gpu_memory() -> tuple[int, int]:
    """Total bytes of the first GPU, and those in use."""
    pynvml = pytest.importorskip("pynvml")
    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        return int(memory.total), int(memory.used)
    finally:
        pynvml.nvmlShutdown()


def cupy_total(count: int) -> int:
    import cupy

    return int(cupy.arange(count).sum())


def test_a_task_computes_on_the_gpu_and_closing_frees_it() -> None:
    pytest.importorskip("cupy")
    before = gpu_memory()[1]
    client, cluster = started(engine_options=PANDAS)
    with cluster, client:
        assert client.submit(cupy_total, 1000).result() == 499_500
        assert gpu_memory()[1] > before
    deadline = time.monotonic() + 60
    while gpu_memory()[1] > before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert gpu_memory()[1] <= before


def test_a_killed_worker_gets_its_gpu_again() -> None:
    pytest.importorskip("cupy")
    client, cluster = started(engine_options=PANDAS)
    with cluster, client:
        (first,) = client.nthreads()
        seen = client.run(lambda: os.environ["CUDA_VISIBLE_DEVICES"])[first]
        client.run(lambda: os.kill(os.getpid(), signal.SIGKILL), on_error="ignore")
        assert client.submit(cupy_total, 10, pure=False).result(timeout=120) == 45
        (second,) = client.nthreads()
        assert second != first
        assert client.run(lambda: os.environ["CUDA_VISIBLE_DEVICES"]) == {second: seen}


def test_the_memory_policy_and_the_layout_survive_a_restart() -> None:
    policy = MemoryPolicy(target=0.4, spill=0.5, pause=0.75, terminate=0.9)

    def pause(dask_worker: Any) -> float:
        return float(dask_worker.memory_manager.memory_pause_fraction)

    client, cluster = started(memory=policy, engine_options=PANDAS)
    with cluster, client:
        for _ in range(2):
            assert list(client.run(pause).values()) == [0.75]
            assert list(client.nthreads().values()) == [2]
            restart(client)


def test_data_beyond_the_device_memory_limit_spills_to_host_memory() -> None:
    cupy = pytest.importorskip("cupy")
    # A fraction: two blocks of 100 MB fit, six do not.
    options = {**PANDAS, "device_memory_limit": 200e6 / gpu_memory()[0]}
    client, cluster = started(engine_options=options)
    with cluster, client:
        held = [
            client.submit(lambda n: cupy.full(12_500_000, n, dtype="float64"), n) for n in range(6)
        ]
        totals = client.gather(client.map(lambda block: float(block.sum()), held))
        assert totals == [12_500_000.0 * n for n in range(6)]
        moved = client.run(lambda dask_worker: len(dask_worker.data.host))
        assert sum(moved.values()) > 0


def test_dataframes_are_read_into_cudf_and_agree_with_pandas(
    client: Client, flights_of_2013: Path
) -> None:
    del client
    flights = dd.read_parquet(flights_of_2013, columns=["carrier", "distance", "dep_delay"])
    assert type(flights.partitions[0].compute()).__module__.startswith("cudf")
    wanted = {"distance": "sum", "dep_delay": "mean"}
    found = flights.groupby("carrier").agg(wanted).compute().to_pandas().sort_index()
    expected = data.read_with_pandas(str(flights_of_2013)).groupby("carrier").agg(wanted)
    pd.testing.assert_frame_equal(
        found, expected, check_dtype=False, check_index_type=False, check_names=False
    )


def test_helpers_take_collections_of_cudf(client: Client, tmp_path: Path) -> None:
    del client
    frame = pd.DataFrame({"k": [1, 2, 1, 2], "x": [1.5, 2.5, 3.5, 4.5]})
    frame.to_parquet(tmp_path / "frame.parquet")
    collection = dd.read_parquet(tmp_path / "frame.parquet")
    found = hyperplane.dataframe.group_agg(collection, "k", {"x": "sum"}).compute()
    assert found["x"].to_dict() == {1: 5.0, 2: 7.0}
    hyperplane.save(collection, str(tmp_path / "saved"))
    kept = hyperplane.load(str(tmp_path / "saved"))
    assert sorted(kept["x"].compute().tolist()) == [1.5, 2.5, 3.5, 4.5]


def test_the_call_of_the_documentation_runs() -> None:
    client, cluster = hyperplane.initialize_cluster(
        ngpus=1,
        nprocs=1,
        nthreads=8,
        ram_gb_per_proc=7,
        cores_per_worker=2,
        num_workers=1,
        scheduler_deploy_mode="local",
        engine="cuda",
    )
    with cluster, client:
        assert list(client.nthreads().values()) == [8]
