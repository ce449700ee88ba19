"""The CSV format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hyperplane.formats.request import ReadPlan, ReadRequest
    from hyperplane.objectstore.locations import File


class CsvFormat:
    """CSV files, with partitions of byte ranges; those that end in ``.tsv`` have tabs."""

    name = "csv"
    suffixes = (".csv", ".tsv", ".txt")
    read_options = (
        "dtypes", "parse_dates", "separator", "encoding", "names", "multiline", "na_values",
    )  # fmt: skip

    def plan_partitions(
        self, files: Sequence[File], request: ReadRequest, options: Mapping[str, Any]
    ) -> ReadPlan:
        """Plan byte ranges, with the types of samples."""
        from hyperplane.formats.csv import plan
        from hyperplane.formats.text_plan import TextOptions

        return plan.plan(files, request, TextOptions.check(options))
