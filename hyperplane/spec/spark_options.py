"""Settings of a plan that only Spark has: how the memory of an executor is divided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.units import bytes_to_gb, format_bytes
from hyperplane.spec.framework_options import FrameworkOptions

if TYPE_CHECKING:
    from typing import Self

MIB = 2**20
#: Smallest heap of an executor. Spark requires 450 MiB, some of which a JVM does not report.
MIN_HEAP = 512 * MIB
#: Memory beside the heap: for Python processes, threads and the JVM; as on Spark's other platforms.
MIN_OVERHEAD = 384 * MIB
_OVERHEAD_PERCENT = 10
MIN_EXECUTOR = MIN_HEAP + MIN_OVERHEAD


def add_overhead(heap: int) -> int:
    """Return the memory of an executor with a heap of this size, in bytes.

    Examples
    --------
    >>> add_overhead(512 * MIB) // MIB, add_overhead(10_000 * MIB) // MIB
    (896, 11000)
    """
    return heap + max(MIN_OVERHEAD, -(-heap * _OVERHEAD_PERCENT // 100))


def subtract_overhead(memory: int) -> int:
    """Return the largest heap, in whole MiB, with which an executor has at most this memory.

    Examples
    --------
    >>> subtract_overhead(896 * MIB) // MIB, subtract_overhead(11_000 * MIB) // MIB
    (512, 10000)
    """
    heap = min(memory - MIN_OVERHEAD, memory * 100 // (100 + _OVERHEAD_PERCENT))
    return heap // MIB * MIB


@dataclass(frozen=True)
class SparkOptions(FrameworkOptions):
    """Settings of one Spark cluster.

    Parameters
    ----------
    heap : int
        Java heap of an executor (``spark.executor.memory``), in bytes.
    overhead : int
        Memory of an executor beside its heap, in bytes.
    """

    heap: int
    overhead: int

    @classmethod
    def of(cls, options: FrameworkOptions) -> Self:
        """Return the options of a plan, with their type.

        Raises
        ------
        RequestError
            If they are those of another framework, or missing.
        """
        if not isinstance(options, cls):
            advice = "create the plan with plan_cluster(...)"
            raise RequestError(
                [Fault("plan.options", type(options).__name__, "SparkOptions", advice)]
            )
        return options

    def rows(self) -> list[tuple[str, str]]:
        """Return the row that these settings add to the printed plan."""
        heap, overhead = format_bytes(self.heap), format_bytes(self.overhead)
        return [("memory of an executor", f"{heap} for its heap, {overhead} beside it")]

    def to_dict(self) -> dict[str, Any]:
        """Return the keys that these settings add to the plan as JSON."""
        return {
            "executor_heap_gb": bytes_to_gb(self.heap),
            "executor_overhead_gb": bytes_to_gb(self.overhead),
        }
