"""The Avro format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hyperplane.formats.request import ReadPlan, ReadRequest
    from hyperplane.objectstore.locations import File


class AvroFormat:
    """Avro files, with partitions of blocks."""

    name = "avro"
    suffixes = (".avro",)
    read_options: tuple[str, ...] = ()

    def plan_partitions(
        self, files: Sequence[File], request: ReadRequest, options: Mapping[str, Any]
    ) -> ReadPlan:
        """Plan partitions of blocks from the headers."""
        from hyperplane.formats.avro import plan

        return plan.plan_files(files, request)
