"""Layouts of plans and of running clusters."""

from __future__ import annotations

import dask.array as da
import pytest

import hyperplane
from hyperplane.errors import RequestError
from hyperplane.forecasts import layout as layouts
from hyperplane.forecasts.layout import SHUFFLE_METHOD, find_layout


def plan(processes, **options):
    return hyperplane.plan_cluster(
        num_workers=1, nprocs=processes, nthreads=2, ram_gb_per_proc=1, engine="local",
        local_fit="exact", **options,
    )  # fmt: skip


def test_the_layout_of_a_plan_has_its_processes_limits_and_settings():
    layout = find_layout(plan(3))
    assert str(layout) == "3 worker processes x 2 threads"
    assert (layout.limit, layout.spill, layout.forked) == (10**9, 0.7, True)
    assert layout.shuffle_buffer == 10**9 // 16
    assert layout.environ["MALLOC_ARENA_MAX"] == "2"


def test_one_process_shuffles_with_tasks():
    assert find_layout(plan(1)).settings[SHUFFLE_METHOD] == "tasks"
    assert SHUFFLE_METHOD not in find_layout(plan(2)).settings


def test_spawned_workers_are_not_forked():
    options = {"start_method": "spawn"}
    assert not find_layout(plan(1, engine_options=options)).forked


def test_a_plan_of_another_framework_is_refused():
    other = hyperplane.plan_cluster(num_workers=1, engine="spark:local", local_fit="fit")
    with pytest.raises(RequestError, match="the plan of a Dask cluster"):
        find_layout(other)


class Scheduler:
    def __init__(self, *addresses):
        worker = {"nthreads": 2, "memory_limit": 10**9}
        self.workers = dict.fromkeys(addresses, worker)

    def scheduler_info(self, n_workers):
        return {"workers": self.workers}


@pytest.mark.parametrize(
    ("addresses", "is_local"),
    [
        (["tcp://127.0.0.1:4000", "tls://[::1]:4001"], True),
        (["inproc://10.0.0.5/7/1"], True),
        (["tcp://127.0.0.1:4000", "tcp://10.0.0.5:4000"], False),
        (["ucx://node3:4000"], False),
    ],
)
def test_a_cluster_is_on_this_machine_if_its_addresses_are(monkeypatch, addresses, is_local):
    monkeypatch.setattr(layouts, "get_active_client", lambda: Scheduler(*addresses))
    assert find_layout(None).is_local is is_local


@pytest.mark.slow
@pytest.mark.cluster
def test_without_a_plan_the_running_cluster_is_used():
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=3, processes=False, memory_limit="1GB",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster),
    ):  # fmt: skip
        layout = find_layout(None)
        assert str(layout) == "2 worker processes x 3 threads"
        assert layout.limit == 10**9
        assert layout.is_local
        found = hyperplane.forecast(da.ones((1000, 1000), chunks=100).sum())
    assert found.layout == str(layout)
    assert not found.refused
    advice = found.advise()
    assert advice.as_arguments()["engine"] == "local"
    assert "advise(local=False)" in str(advice)
