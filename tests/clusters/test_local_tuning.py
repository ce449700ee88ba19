"""The tuning of a plan applies in workers and does not change the user's settings."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import dask.config
import distributed  # noqa: F401 - so that dask.config.set restores its keys
import pytest
from scale import scaled
from services import restart

import hyperplane
from hyperplane.clusters.dask import worker_memory

pytestmark = pytest.mark.cluster

#: Whether malloc is that of glibc, with thresholds that variables set.
LINUX = sys.platform.startswith("linux")
ONE: dict[str, Any] = {
    "num_workers": 1,
    "nprocs": 1,
    "nthreads": 2,
    "ram_gb_per_proc": 1,
    "cores_per_worker": 2,
    "local_fit": "exact",
    "timeout": 200,
}
FAST = {
    "profile": 0.1,
    "monitor": 2.0,
    "tick": 0.2,
    "gil": False,
    "method": "tasks",
    "trim": "67108864",
    "mmap": "33554432",
    "arenas": "2",
    "messages": 1,
    "buffer": 62_500_000,
    "pool": "system",
    "polars": "2",
    "polars threads": 2,
}
DASK = {
    "profile": 0.01,
    "monitor": 0.5,
    "tick": 0.02,
    "gil": True,
    "method": None,
    "trim": "65536",
    "mmap": None,
    "arenas": None,
    "messages": 10,
    "buffer": "1 GiB",
    "polars": None,
}


def look(dask_worker: Any) -> dict[str, Any]:
    """Return the settings of a worker: Dask, environment, pyarrow and Polars."""
    import os

    import dask.config
    import polars
    import pyarrow

    callbacks = dask_worker.periodic_callbacks
    return {
        "profile": callbacks["profile"].callback_time / 1000,
        "monitor": callbacks["monitor"].callback_time / 1000,
        "tick": callbacks["tick"].callback_time / 1000,
        "gil": dask.config.get("distributed.admin.system-monitor.gil.enabled"),
        "method": dask.config.get("dataframe.shuffle.method"),
        "trim": os.environ.get("MALLOC_TRIM_THRESHOLD_"),
        "mmap": os.environ.get("MALLOC_MMAP_THRESHOLD_"),
        "arenas": os.environ.get("MALLOC_ARENA_MAX"),
        "messages": dask.config.get("distributed.p2p.comm.concurrency"),
        "buffer": dask.config.get("distributed.p2p.comm.buffer"),
        "pool": pyarrow.default_memory_pool().backend_name,
        "polars": os.environ.get("POLARS_MAX_THREADS"),
        "polars threads": polars.thread_pool_size(),
    }


def maps_a_large_block() -> bool:
    """Return whether malloc maps 4 MiB, and so returns them to the system at once."""
    import ctypes

    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    block = libc.malloc(4 << 20)
    # A bit in the header of the block marks mapped blocks; see the source of glibc's malloc.
    size = ctypes.c_size_t.from_address(block - ctypes.sizeof(ctypes.c_size_t)).value
    libc.free(block)
    return bool(size & 2)


def count_heaps() -> int:
    """Return the number of heaps (arenas) of malloc in this process."""
    import ctypes
    import os
    import tempfile

    libc = ctypes.CDLL(None)
    libc.fdopen.restype = ctypes.c_void_p
    libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
    libc.fclose.argtypes = [ctypes.c_void_p]
    with tempfile.TemporaryFile() as file:
        stream = libc.fdopen(os.dup(file.fileno()), b"w")
        libc.malloc_info(0, stream)
        libc.fclose(stream)
        file.seek(0)
        return file.read().count(b"<heap nr=")


def some(found: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    return {key: found[key] for key in like}


@pytest.mark.parametrize("start_method", scaled(["preload"], ["preload", "spawn"]))
def test_in_force_after_start_scale_and_restart(start_method: str) -> None:
    before = json.dumps(dask.config.config, default=str)
    with dask.config.set({"hyperplane.engines.local.start_method": start_method}):
        client, cluster = hyperplane.start(hyperplane.plan_cluster(**ONE))
    with cluster, client:
        assert list(client.run(look).values()) == [FAST]
        assert dask.config.get("dataframe.shuffle.method") == "tasks"
        if LINUX:
            assert list(client.run(maps_a_large_block).values()) == [False]
        if start_method == "preload":
            cluster.scale(2)
            client.wait_for_workers(2, timeout=120)
            assert list(client.run(look).values()) == [FAST] * 2
        restart(client)
        assert {json.dumps(each) for each in client.run(look).values()} == {json.dumps(FAST)}
        if LINUX:
            assert set(client.run(maps_a_large_block).values()) == {False}
        scheduler = cluster.scheduler.periodic_callbacks
        assert scheduler["tick"].callback_time == 200
    assert json.dumps(dask.config.config, default=str) == before


@pytest.mark.skipif(not LINUX, reason="malloc is not that of glibc")
def test_threads_of_a_forked_worker_share_as_many_heaps_as_it_has_task_threads() -> None:
    """Also those that Dask starts before it has the variables of a worker."""
    client, cluster = hyperplane.start(hyperplane.plan_cluster(**{**ONE, "nthreads": 1}))
    with cluster, client:
        assert client.submit(sum, [1, 2]).result() == 3
        assert list(client.run(count_heaps).values()) == [1]
        restart(client)
        assert list(client.run(count_heaps).values()) == [1]


def test_the_profile_dask_changes_nothing() -> None:
    with dask.config.set({"hyperplane.tuning.profile": "dask"}):
        client, cluster = hyperplane.start(hyperplane.plan_cluster(**ONE))
    with cluster, client:
        [found] = client.run(look).values()
        assert some(found, DASK) == DASK
        assert found["pool"] != "system"
        if LINUX:
            assert list(client.run(maps_a_large_block).values()) == [True]
        assert dask.config.get("dataframe.shuffle.method") is None


def test_settings_and_variables_of_the_user_have_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_MAX_THREADS", "1")
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "131072")
    chosen = {
        "distributed.worker.profile.interval": "33ms",
        "distributed.admin.tick.interval": "50ms",
        "distributed.nanny.environ": {"ARROW_DEFAULT_MEMORY_POOL": "mimalloc"},
        "dataframe.shuffle.method": "p2p",
    }
    with dask.config.set(chosen):
        client, cluster = hyperplane.start(hyperplane.plan_cluster(**ONE))
        with cluster, client:
            [found] = client.run(look).values()
            assert some(found, FAST) == {
                **FAST,
                "profile": 0.033,
                "tick": 0.05,
                "pool": "mimalloc",
                "polars": "1",
                "polars threads": 1,
                "mmap": "131072",
                "method": "p2p",
            }
            assert dask.config.get("dataframe.shuffle.method") == "p2p"
        assert dask.config.get("dataframe.shuffle.method") == "p2p"


def test_several_processes_keep_the_shuffle_of_dask() -> None:
    client, cluster = hyperplane.start(
        hyperplane.plan_cluster(**{**ONE, "nprocs": 2, "nthreads": 1})
    )
    with cluster, client:
        assert dask.config.get("dataframe.shuffle.method") is None
        found = client.run(look).values()
        assert {(each["method"], each["messages"]) for each in found} == {(None, 2)}


def test_the_program_is_unchanged_but_for_the_shuffle_of_all_handles() -> None:
    def variables() -> dict[str, str]:  # Dask records the parent of processes that it starts
        return {name: value for name, value in os.environ.items() if "DASK" not in name}

    before = variables()
    started = hyperplane.start(hyperplane.plan_cluster(**ONE))
    with started.cluster, started.client:
        assert variables() == before
        restart(started.client)
        check_shuffle()
        dask.config.set({"dataframe.shuffle.method": None})
        found = hyperplane.get_cluster(started.cluster.name)
        assert dask.config.get("dataframe.shuffle.method") == "tasks"
        found.client.close()
        found.cluster.close()  # for the owning process too
    assert dask.config.get("dataframe.shuffle.method") is None
    assert variables() == before


def check_shuffle() -> None:
    """Compare a merge on the cluster with that of pandas."""
    import dask.dataframe as dd
    import pandas as pd

    left = pd.DataFrame({"key": [n % 7 for n in range(1000)], "value": range(1000)})
    right = pd.DataFrame({"key": range(7), "name": list("abcdefg")})
    joined = dd.from_pandas(left, npartitions=5).merge(
        dd.from_pandas(right, npartitions=3), on="key"
    )
    found = joined.compute().sort_values("value").reset_index(drop=True)
    pd.testing.assert_frame_equal(
        found, left.merge(right, on="key"), check_dtype=False, check_like=True
    )


@pytest.mark.parametrize("tuning", ["fast", "dask"])
def test_results_come_from_the_workers_and_not_by_way_of_the_scheduler(tuning: str) -> None:
    started = hyperplane.start(hyperplane.plan_cluster(**ONE, tuning=tuning))
    with started.cluster, started.client:
        handlers, asked = started.cluster.scheduler.handlers, []
        gather = handlers["gather"]

        async def counted(*arguments: Any, **options: Any) -> Any:
            asked.append(options)
            return await gather(*arguments, **options)

        handlers["gather"] = counted
        assert started.client.submit(sum, [1, 2]).result() == 3
        found = hyperplane.get_cluster(started.cluster.name)
        assert found.client.submit(sum, [1, 2, 3]).result() == 6
        found.client.close()
        found.cluster.close()
    assert len(asked) == (2 if tuning == "dask" else 0)


def test_an_invalid_variable_is_logged_and_has_no_effect() -> None:
    environ = "hyperplane.tuning.profiles.fast.environ"
    wrong = {f"{environ}.MALLOC_ARENA_MAX": "few", f"{environ}.ARROW_DEFAULT_MEMORY_POOL": "none"}
    with dask.config.set(wrong):
        client, cluster = hyperplane.start(hyperplane.plan_cluster(**ONE))
    with cluster, client:
        assert client.submit(sum, [1, 2]).result() == 3
        logs = "".join(str(log) for log in cluster.get_logs().values())
        assert "MALLOC_ARENA_MAX=few has no effect" in logs
        assert "ARROW_DEFAULT_MEMORY_POOL=none has no effect" in logs


@pytest.mark.parametrize(
    ("platform", "chosen", "left"),
    [
        ("linux", set(), {"MALLOC_TRIM_THRESHOLD_", "ARROW_DEFAULT_MEMORY_POOL", "OTHER"}),
        ("linux", {"OTHER"}, {"MALLOC_TRIM_THRESHOLD_", "ARROW_DEFAULT_MEMORY_POOL"}),
        ("linux", {"MALLOC_TRIM_THRESHOLD_"}, {"OTHER"}),
        ("darwin", set(), {"OTHER"}),
    ],
)
def test_a_users_malloc_variable_leaves_out_the_arrow_pool(
    platform: str, chosen: set[str], left: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    names = ("MALLOC_TRIM_THRESHOLD_", "ARROW_DEFAULT_MEMORY_POOL", "OTHER")
    asked = dict.fromkeys(names, "1")
    free = {name: "1" for name in names if name not in chosen}
    assert set(worker_memory.select_variables(asked, free)) == left
