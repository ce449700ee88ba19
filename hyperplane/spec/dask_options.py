"""Settings of a plan that only Dask has: memory policy and tuning."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hyperplane.core.errors import Fault, RequestError
from hyperplane.spec.framework_options import FrameworkOptions
from hyperplane.spec.memory import MemoryPolicy
from hyperplane.spec.tuning import Tuning

if TYPE_CHECKING:
    from typing import Self


@dataclass(frozen=True)
class DaskOptions(FrameworkOptions):
    """Settings of one Dask cluster.

    Parameters
    ----------
    memory : MemoryPolicy
        Memory thresholds of every worker.
    tuning : Tuning
        Performance settings of Dask; prints as a list.
    """

    memory: MemoryPolicy = field(default_factory=MemoryPolicy)
    tuning: Tuning = field(default_factory=Tuning)

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
                [Fault("plan.options", type(options).__name__, "DaskOptions", advice)]
            )
        return options

    def rows(self) -> list[tuple[str, str]]:
        """Return the rows that these settings add to the printed plan."""
        return [("memory policy", str(self.memory)), ("tuning", self.tuning.summary())]

    def setting_rows(self) -> list[tuple[str, str]]:
        """Return every setting of the tuning profile as a row."""
        return self.tuning.rows()

    def to_dict(self) -> dict[str, Any]:
        """Return the keys that these settings add to the plan as JSON."""
        return {"memory": self.memory.to_dict(), "tuning": self.tuning.model_dump()}
