"""Settings of a plan that only Ray has: the object store of a worker node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.units import bytes_to_gb, format_bytes
from hyperplane.spec.framework_options import FrameworkOptions

if TYPE_CHECKING:
    from typing import Self

#: Smallest object store that Ray accepts, in bytes, rounded up.
MIN_OBJECT_STORE = 80_000_000


@dataclass(frozen=True)
class RayOptions(FrameworkOptions):
    """Settings of one Ray cluster.

    Parameters
    ----------
    object_store : int
        Memory of a worker node for its object store, in bytes.
    memory : int
        Memory of a worker node for its tasks and actors, in bytes.
    """

    object_store: int
    memory: int

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
                [Fault("plan.options", type(options).__name__, "RayOptions", advice)]
            )
        return options

    def rows(self) -> list[tuple[str, str]]:
        """Return the row that these settings add to the printed plan."""
        store, memory = format_bytes(self.object_store), format_bytes(self.memory)
        return [("memory of a node", f"{memory} for tasks, {store} for objects")]

    def to_dict(self) -> dict[str, Any]:
        """Return the keys that these settings add to the plan as JSON."""
        return {
            "object_store_gb": bytes_to_gb(self.object_store),
            "task_memory_gb": bytes_to_gb(self.memory),
        }
