"""Adaptive clusters: their nodes follow the work, between the limits of the plan."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from distributed.deploy.adaptive import Adaptive

from hyperplane.spec.plan import ClusterPlan


class NodeAdaptive(Adaptive):
    """Adaptive scaling by whole nodes: Dask's scales single worker processes.

    Parameters
    ----------
    processes : int
        Worker processes of a node.
    **kwargs
        Arguments of Adaptive.
    """

    def __init__(self, cluster: Any = None, *, processes: int, **kwargs: Any) -> None:
        self.processes = processes
        super().__init__(cluster, **kwargs)

    async def target(self) -> int:
        """Return the number of worker processes that the work needs, in whole nodes."""
        wanted: int = await super().target()
        return math.ceil(wanted / self.processes) * self.processes

    async def recommendations(self, target: int) -> dict[str, Any]:
        """Return the next step: the same, ``up`` to a number, or ``down`` by these processes.

        Dask also takes single processes that are not connected, such as one that restarts after it
        lacked memory. To end it ends its node, with the tasks of the node's other processes.
        """
        if len(self.plan) != len(self.requested):
            await self.cluster  # as Dask does: its nodes are being started or ended
        excess = len(self.plan) - target
        if excess <= 0:
            recommended: dict[str, Any] = await super().recommendations(target)
            return recommended
        cluster: Any = self.cluster  # a SpecCluster
        nodes = group_processes(cluster.worker_spec)
        observed = self.observed
        closing = take_nodes((node for node in nodes if not node & observed), excess)
        if len(closing) < excess:
            names = await self.workers_to_close(target=target)
            chosen = (node for name in names for node in nodes if name in node)
            closing |= take_nodes(dict.fromkeys(chosen), excess - len(closing))
        counts = {name: self.close_counts[name] + 1 for name in closing}
        firmly = [name for name, count in counts.items() if count >= self.wait_count]
        self.close_counts.clear()
        self.close_counts.update({name: counts[name] for name in counts.keys() - set(firmly)})
        return {"status": "down", "workers": firmly} if firmly else {"status": "same"}


def group_processes(worker_spec: Mapping[Any, Mapping[str, Any]]) -> list[frozenset[Any]]:
    """Return the names of the worker processes of each entry of a cluster's ``worker_spec``.

    Examples
    --------
    >>> [sorted(node) for node in group_processes({"a": {"group": ["-0", "-1"]}, 3: {}})]
    [['a-0', 'a-1'], [3]]
    """
    return [
        frozenset(f"{name}{suffix}" for suffix in spec["group"])
        if "group" in spec
        else frozenset([name])
        for name, spec in worker_spec.items()
    ]


def take_nodes(nodes: Iterable[frozenset[Any]], most: int) -> set[Any]:
    """Return the processes of the first nodes that have at most this number together.

    Examples
    --------
    >>> sorted(take_nodes([frozenset("ab"), frozenset("cd")], 3))
    ['a', 'b']
    """
    taken: set[Any] = set()
    for node in nodes:
        if len(taken) + len(node) <= most:
            taken |= node
    return taken


def begin_adapting(cluster: Any, plan: ClusterPlan) -> None:
    """Let a cluster of this process adapt to the work, if its plan has a maximum."""
    if plan.max_nodes is None:
        return
    processes = plan.worker.nprocs
    cluster.adapt(
        Adaptive=NodeAdaptive,
        processes=processes,
        minimum=plan.nodes * processes,
        maximum=plan.max_nodes * processes,
    )


def begin_remote_adapting(cluster: Any, plan: ClusterPlan) -> None:
    """Let the operator or the gateway adapt a cluster, if its plan has a maximum.

    They count worker processes: each is a pod or a job.
    """
    if plan.max_nodes is not None:
        processes = plan.worker.nprocs
        cluster.adapt(minimum=plan.nodes * processes, maximum=plan.max_nodes * processes)
