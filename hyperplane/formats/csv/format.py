"""The CSV format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hyperplane.formats.partition_sizes import WHOLE_FILES

if TYPE_CHECKING:
    import pyarrow as pa

    from hyperplane.formats.base import EncodedFile, SizeEstimate
    from hyperplane.formats.request import ReadPlan, ReadRequest
    from hyperplane.objectstore.locations import File


class CsvFormat:
    """CSV files, with partitions of byte ranges; those that end in ``.tsv`` have tabs."""

    name = "csv"
    suffixes = (".csv", ".tsv", ".txt")
    read_options = (
        "dtypes", "parse_dates", "separator", "encoding", "names", "multiline", "na_values",
    )  # fmt: skip
    saved_suffixes: tuple[str, ...] = (".csv",)
    read_arguments: Mapping[str, Any] = {"format": "csv"}

    def plan_partitions(
        self, files: Sequence[File], request: ReadRequest, options: Mapping[str, Any]
    ) -> ReadPlan:
        """Plan byte ranges, with the types of samples."""
        from hyperplane.formats.csv.read import plan_partitions
        from hyperplane.formats.text_plan import TextOptions

        return plan_partitions(files, request, TextOptions.check(options))

    def plan_shard(
        self,
        files: Sequence[File],
        request: ReadRequest,
        options: Mapping[str, Any],
        index: int,
        count: int,
    ) -> ReadPlan:
        """Plan the byte ranges of the records of a shard."""
        from hyperplane.formats.csv.record_starts import CsvRecordBoundaries
        from hyperplane.formats.text_shards import plan_shard

        whole = self.plan_partitions(files, replace(request, partition_size=WHOLE_FILES), options)
        return plan_shard(whole, index, count, CsvRecordBoundaries(options.get("multiline")))

    def estimate_size(self, files: Sequence[File]) -> SizeEstimate:
        """Estimate the size from samples."""
        from hyperplane.formats.size_estimates import estimate_text, parse_csv_sample

        return estimate_text(files, parse_csv_sample, "CSV")

    def encode_table(self, table: Any) -> EncodedFile:
        """Return a table as a CSV file; raise for what text does not hold without loss."""
        from hyperplane.formats.csv.write import encode_csv

        return encode_csv(table, ",")

    def decode_table(self, data: bytes, schema: pa.Schema | None) -> Any:
        """Return the table in a CSV file: with recorded types, or as pandas with inferred ones."""
        from hyperplane.formats.csv.write import decode_csv

        return decode_csv(data, schema, ",")


class TsvFormat:
    """CSV with tabs, for ``save`` and ``load``; ``csv`` reads these files, too."""

    name = "tsv"
    suffixes: tuple[str, ...] = ()
    saved_suffixes = (".tsv",)
    read_arguments: Mapping[str, Any] = {"format": "csv", "separator": "\t"}

    def encode_table(self, table: Any) -> EncodedFile:
        """Return a table as a TSV file; raise for what text does not hold without loss."""
        from hyperplane.formats.csv.write import encode_csv

        return encode_csv(table, "\t")

    def decode_table(self, data: bytes, schema: pa.Schema | None) -> Any:
        """Return the table in a TSV file: with recorded types, or as pandas with inferred ones."""
        from hyperplane.formats.csv.write import decode_csv

        return decode_csv(data, schema, "\t")
