"""The Parquet format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hyperplane.formats.request import ReadPlan, ReadRequest
    from hyperplane.objectstore.locations import File


class ParquetFormat:
    """Parquet files, with partitions of row groups."""

    name = "parquet"
    suffixes = (".parquet", ".parq", ".pq")
    read_options: tuple[str, ...] = ()

    def plan_partitions(
        self, files: Sequence[File], request: ReadRequest, options: Mapping[str, Any]
    ) -> ReadPlan:
        """Plan partitions of row groups from the footers."""
        from hyperplane.formats.parquet import plan

        return plan.plan(files, request)
