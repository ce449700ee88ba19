"""The ORC format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hyperplane.formats.base import SizeEstimate
    from hyperplane.formats.request import ReadPlan, ReadRequest
    from hyperplane.objectstore.locations import File


class OrcFormat:
    """ORC files, with partitions of stripes."""

    name = "orc"
    suffixes = (".orc",)
    read_options: tuple[str, ...] = ()

    def plan_partitions(
        self, files: Sequence[File], request: ReadRequest, options: Mapping[str, Any]
    ) -> ReadPlan:
        """Plan partitions of stripes from the footers."""
        from hyperplane.formats.orc import plan

        return plan.plan(files, request)

    def plan_shard(
        self,
        files: Sequence[File],
        request: ReadRequest,
        options: Mapping[str, Any],
        index: int,
        count: int,
    ) -> ReadPlan:
        """Plan the stripes that have rows of a shard, and those rows."""
        from hyperplane.formats.orc import plan

        return plan.plan_shard(files, request, index, count)

    def estimate_size(self, files: Sequence[File]) -> SizeEstimate:
        """Estimate the size from the footers and the first rows of a file."""
        from hyperplane.formats.orc import footers

        return footers.estimate_files(files)
