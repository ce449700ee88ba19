"""The Avro format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from hyperplane.formats.base import EncodedFile
    from hyperplane.formats.request import ReadPlan, ReadRequest
    from hyperplane.objectstore.locations import File


class AvroFormat:
    """Avro files, with partitions of blocks."""

    name = "avro"
    suffixes = (".avro",)
    read_options: tuple[str, ...] = ()
    saved_suffixes = (".avro",)
    read_arguments: Mapping[str, Any] = {"format": "avro"}

    def plan_partitions(
        self, files: Sequence[File], request: ReadRequest, options: Mapping[str, Any]
    ) -> ReadPlan:
        """Plan partitions of blocks from the headers."""
        from hyperplane.formats.avro.read import plan_partitions

        return plan_partitions(files, request)

    def encode_table(self, table: Any) -> EncodedFile:
        """Return a table as an Avro file that also holds the Arrow schema."""
        from hyperplane.formats.avro.write import encode_avro

        return encode_avro(table)

    def decode_table(self, data: bytes, schema: pa.Schema | None) -> pa.Table:
        """Return the table in an Avro file."""
        from hyperplane.formats.avro.write import read_avro

        return read_avro(data)

    def encode_records(self, items: Sequence[Any]) -> EncodedFile:
        """Encode dicts, which must have the same fields, as an Avro file."""
        from hyperplane.formats.records import build_table

        return self.encode_table(build_table(items, "avro"))

    def decode_records(self, data: bytes) -> list[Any]:
        """Return the records of an Avro file."""
        return list(self.decode_table(data, None).to_pylist())
