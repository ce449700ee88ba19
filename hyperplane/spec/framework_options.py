"""Base class of the settings of a plan that only one framework has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


class FrameworkOptions:
    """Settings of one cluster that only its framework has; this class itself has none.

    A subclass is a frozen dataclass, such as ``DaskOptions``.
    """

    if TYPE_CHECKING:  # plan.options.memory of a Dask cluster, for example

        def __getattr__(self, name: str) -> Any: ...

    def rows(self) -> list[tuple[str, str]]:
        """Return the rows that these settings add to the printed plan."""
        return []

    def setting_rows(self) -> list[tuple[str, str]]:
        """Return every setting as a row, for ``hyperplane plan --settings``."""
        return self.rows()

    def to_dict(self) -> dict[str, Any]:
        """Return the keys that these settings add to the plan as JSON."""
        return {}
