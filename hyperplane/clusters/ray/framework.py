"""The framework Ray: sections of plans and printed lines that its engines share."""

from __future__ import annotations

from typing import ClassVar

from hyperplane.clusters.framework import BaseFramework, OptionsDraft
from hyperplane.spec.ray_options import MIN_OBJECT_STORE, RayOptions
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.worker import WorkerSpec

#: Fraction of a worker node's memory for its object store, as Ray divides the memory of a machine.
OBJECT_STORE_FRACTION = 0.3


class RayFramework(BaseFramework):
    """Ray's clusters: a ``RayClient`` and the cluster object of the engine."""

    name: ClassVar[str] = "ray"

    def draft_options(self, request: ClusterRequest) -> OptionsDraft:
        """Return the section for Ray: how the memory of a worker node is divided."""
        del request

        def for_layout(worker: WorkerSpec, nodes: int) -> RayOptions:
            del nodes
            store = max(MIN_OBJECT_STORE, int(worker.ram_per_proc * OBJECT_STORE_FRACTION))
            return RayOptions(store, max(1, worker.ram_per_proc - store))

        return OptionsDraft(for_layout)
