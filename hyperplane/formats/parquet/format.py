"""The Parquet format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from hyperplane.formats.base import SizeEstimate
    from hyperplane.formats.parquet.partition import ParquetPartition
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

    def plan_shard(
        self,
        files: Sequence[File],
        request: ReadRequest,
        options: Mapping[str, Any],
        index: int,
        count: int,
    ) -> ReadPlan:
        """Plan the row groups that have rows of a shard, and those rows."""
        from hyperplane.formats.parquet import plan, shard

        row_groups = plan.plan(files, replace(request, partition_size=1))
        part = shard.select_rows(cast("Sequence[ParquetPartition]", row_groups.parts), index, count)
        return replace(row_groups, parts=[part] if part else [])

    def estimate_size(self, files: Sequence[File]) -> SizeEstimate:
        """Estimate the size from the footers."""
        from hyperplane.formats.parquet import footer_size

        return footer_size.estimate_files(files)
