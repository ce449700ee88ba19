"""The layout that the advice after a failure for memory may change."""

from __future__ import annotations

import hyperplane
from hyperplane.clusters.dask.worker_layout import layout_of


def test_a_cluster_of_a_pool_can_use_other_pools() -> None:
    options = {"image": "example.com/image:1"}
    plan = hyperplane.plan_cluster(
        num_workers=2, pool="8_8", nprocs=2, engine="kubernetes", engine_options=options
    )
    layout = layout_of(plan)
    assert plan.pool is not None
    assert layout.node_ram == plan.pool.allocatable_ram == layout.pools["8_8"]
    assert max(layout.pools.values()) > layout.node_ram
    assert not any(hyperplane.get_pool(name).gpus for name in layout.pools)


def test_a_cluster_of_one_machine_cannot() -> None:
    plan = hyperplane.plan_cluster(num_workers=2, pool="8_8", nprocs=2, engine="local")
    layout = layout_of(plan, shared_ram=9 * 10**9)
    assert (layout.node_ram, layout.pools, layout.nodes) == (9 * 10**9, {}, plan.nodes)


def test_nodes_of_an_engine_without_pools_have_unknown_memory() -> None:
    plan = hyperplane.plan_cluster(num_workers=2, pool="8_8", nprocs=2, engine="slurm")
    layout = layout_of(plan)
    assert (layout.node_ram, layout.pools) == (0, {})
