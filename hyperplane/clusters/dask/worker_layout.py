"""The layout of a plan as the explanation of failures for memory needs it."""

from __future__ import annotations

from hyperplane.guard.memory_advice import WorkerLayout
from hyperplane.spec.plan import ClusterPlan


def layout_of(plan: ClusterPlan, shared_ram: int = 0) -> WorkerLayout:
    """Return the layout of a plan's workers.

    ``shared_ram`` is the memory of the machine on which the workers of all nodes run together;
    without it, the pool of an engine with pools says how much memory a node has, and another pool
    can be chosen.
    """
    worker = plan.worker
    pools = (
        {}
        if plan.pool is None or shared_ram
        else {
            pool.name: pool.allocatable_ram
            for pool in plan.pools
            if bool(pool.gpus) == bool(plan.pool.gpus)
        }
    )
    pool_ram = plan.pool.allocatable_ram if plan.pool is not None and plan.pools else 0
    return WorkerLayout(
        ram_per_proc=worker.ram_per_proc,
        nprocs=worker.nprocs,
        nthreads=worker.nthreads,
        nodes=plan.nodes if shared_ram else 1,
        node_ram=shared_ram or pool_ram,
        pools=pools,
    )
