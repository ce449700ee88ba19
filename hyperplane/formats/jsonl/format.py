"""The JSON lines format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hyperplane.formats.request import ReadPlan, ReadRequest
    from hyperplane.objectstore.locations import File


class JsonLinesFormat:
    """JSON lines, with partitions of byte ranges."""

    name = "jsonl"
    suffixes = (".json", ".jsonl", ".ndjson")
    read_options = ("dtypes", "parse_dates")

    def plan_partitions(
        self, files: Sequence[File], request: ReadRequest, options: Mapping[str, Any]
    ) -> ReadPlan:
        """Plan byte ranges, with the types of samples."""
        from hyperplane.formats.jsonl import plan
        from hyperplane.formats.text_plan import TextOptions

        return plan.plan(files, request, TextOptions.check(options))
