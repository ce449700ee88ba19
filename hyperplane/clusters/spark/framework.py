"""The framework Spark: sections of plans and printed lines that its engines share."""

from __future__ import annotations

from typing import ClassVar

from hyperplane.clusters.framework import BaseFramework, OptionsDraft
from hyperplane.core.errors import Fault, check
from hyperplane.core.units import format_bytes
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.spark_options import (
    MIN_EXECUTOR,
    MIN_HEAP,
    MIN_OVERHEAD,
    SparkOptions,
    subtract_overhead,
)
from hyperplane.spec.worker import WorkerSpec

_ALLOWED = (
    f"at least {format_bytes(MIN_EXECUTOR)} for each executor: {format_bytes(MIN_HEAP)} for its "
    f"heap and {format_bytes(MIN_OVERHEAD)} beside it"
)


class SparkFramework(BaseFramework):
    """Spark's clusters: a ``SparkClient`` and the cluster object of the engine."""

    name: ClassVar[str] = "spark"

    def draft_options(self, request: ClusterRequest) -> OptionsDraft:
        """Return the section for Spark: how the memory of an executor is divided."""
        asked = request.worker.ram_per_proc
        if "ram_gb_per_proc" in request.model_fields_set:
            check(_find_memory_faults(asked, format_bytes(asked)))

        def for_layout(worker: WorkerSpec, nodes: int) -> SparkOptions:
            del nodes
            available = worker.ram_per_proc
            value = f"{format_bytes(asked)}, for which {format_bytes(available)} are available"
            check(_find_memory_faults(available, value))
            heap = subtract_overhead(available)
            return SparkOptions(heap, available - heap)

        return OptionsDraft(for_layout)


def _find_memory_faults(memory: int, value: str) -> list[Fault]:
    return [] if memory >= MIN_EXECUTOR else [Fault("ram_gb_per_proc", value, _ALLOWED)]
