"""The section of a plan that only one framework has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


class FrameworkOptions:
    """Base class of the sections, and the section of a framework without options.

    A subclass is a frozen dataclass with the framework's settings for one cluster.
    """

    if TYPE_CHECKING:  # plan.options.memory of a Dask cluster, for example

        def __getattr__(self, name: str) -> Any: ...

    def rows(self) -> list[tuple[str, str]]:
        """Return the rows that the section adds to the printed plan."""
        return []

    def setting_rows(self) -> list[tuple[str, str]]:
        """Return every setting as a row, for ``hyperplane plan --settings``."""
        return self.rows()

    def to_dict(self) -> dict[str, Any]:
        """Return the keys that the section adds to the plan as JSON."""
        return {}
