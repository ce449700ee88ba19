"""The JSON lines format."""

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


class JsonLinesFormat:
    """JSON lines, with partitions of byte ranges."""

    name = "jsonl"
    suffixes = (".json", ".jsonl", ".ndjson")
    read_options = ("dtypes", "parse_dates")
    saved_suffixes = (".jsonl", ".ndjson")
    read_arguments: Mapping[str, Any] = {"format": "jsonl"}

    def plan_partitions(
        self, files: Sequence[File], request: ReadRequest, options: Mapping[str, Any]
    ) -> ReadPlan:
        """Plan byte ranges, with the types of samples."""
        from hyperplane.formats.jsonl.read import plan_partitions
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
        from hyperplane.formats.text_shards import LineBoundaries, plan_shard

        whole = self.plan_partitions(files, replace(request, partition_size=WHOLE_FILES), options)
        return plan_shard(whole, index, count, LineBoundaries())

    def estimate_size(self, files: Sequence[File]) -> SizeEstimate:
        """Estimate the size from samples."""
        from hyperplane.formats.size_estimates import estimate_text, parse_json_sample

        return estimate_text(files, parse_json_sample, "JSON")

    def encode_table(self, table: Any) -> EncodedFile:
        """Return a table as JSON lines; raise for what JSON does not hold without loss."""
        from hyperplane.formats.jsonl.write import encode_json_lines

        return encode_json_lines(table)

    def decode_table(self, data: bytes, schema: pa.Schema | None) -> Any:
        """Return the table in a file: with recorded types, or as pandas with inferred ones."""
        from hyperplane.formats.jsonl.write import decode_json_lines

        return decode_json_lines(data, schema)

    def encode_records(self, items: Sequence[Any]) -> EncodedFile:
        """Return items as one JSON value per line."""
        from hyperplane.formats.jsonl.write import encode_json_records

        return encode_json_records(items)

    def decode_records(self, data: bytes) -> list[Any]:
        """Return the JSON values of all lines."""
        from hyperplane.formats.jsonl.write import decode_json_records

        return decode_json_records(data)
