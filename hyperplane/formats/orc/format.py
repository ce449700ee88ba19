"""The ORC format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from hyperplane.formats.base import EncodedFile, SizeEstimate
    from hyperplane.formats.request import ReadPlan, ReadRequest
    from hyperplane.objectstore.locations import File


class OrcFormat:
    """ORC files, with partitions of stripes."""

    name = "orc"
    suffixes = (".orc",)
    read_options: tuple[str, ...] = ()
    saved_suffixes = (".orc",)
    read_arguments: Mapping[str, Any] = {"format": "orc"}

    def plan_partitions(
        self, files: Sequence[File], request: ReadRequest, options: Mapping[str, Any]
    ) -> ReadPlan:
        """Plan partitions of stripes from the footers."""
        from hyperplane.formats.orc.read import plan_partitions

        return plan_partitions(files, request)

    def plan_shard(
        self,
        files: Sequence[File],
        request: ReadRequest,
        options: Mapping[str, Any],
        index: int,
        count: int,
    ) -> ReadPlan:
        """Plan the stripes that have rows of a shard, and those rows."""
        from hyperplane.formats.orc.read import plan_shard

        return plan_shard(files, request, index, count)

    def estimate_size(self, files: Sequence[File]) -> SizeEstimate:
        """Estimate the size from some footers, and from stripes of one file."""
        from hyperplane.formats.orc import footers

        return footers.estimate_files(files)

    def encode_table(self, table: Any) -> EncodedFile:
        """Return a table as an ORC file that also holds the Arrow schema."""
        from hyperplane.formats.orc.write import encode_orc

        return encode_orc(table)

    def decode_table(self, data: bytes, schema: pa.Schema | None) -> pa.Table:
        """Return the table in an ORC file."""
        from hyperplane.formats.orc.write import decode_orc

        return decode_orc(data)

    def encode_records(self, items: Sequence[Any]) -> EncodedFile:
        """Encode dicts, which must have the same fields, as an ORC file."""
        from hyperplane.formats.records import build_table

        return self.encode_table(build_table(items, "orc"))

    def decode_records(self, data: bytes) -> list[Any]:
        """Return the rows of an ORC file as dicts."""
        return list(self.decode_table(data, None).to_pylist())
