"""The Parquet format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from hyperplane.formats.base import EncodedFile, SizeEstimate
    from hyperplane.formats.pandas_frames.typed_table import TypedTable
    from hyperplane.formats.request import ReadPlan, ReadRequest
    from hyperplane.objectstore.locations import File


class ParquetFormat:
    """Parquet files, with partitions of row groups."""

    name = "parquet"
    suffixes = (".parquet", ".parq", ".pq")
    read_options: tuple[str, ...] = ()
    saved_suffixes = (".parquet", ".parq", ".pq")
    read_arguments: Mapping[str, Any] = {"format": "parquet"}

    def plan_partitions(
        self, files: Sequence[File], request: ReadRequest, options: Mapping[str, Any]
    ) -> ReadPlan:
        """Plan partitions of row groups from the footers."""
        from hyperplane.formats.parquet.read import plan_partitions

        return plan_partitions(files, request)

    def plan_shard(
        self,
        files: Sequence[File],
        request: ReadRequest,
        options: Mapping[str, Any],
        index: int,
        count: int,
    ) -> ReadPlan:
        """Plan the row groups that have rows of a shard, and those rows."""
        from hyperplane.formats.parquet.read import plan_shard

        return plan_shard(files, request, index, count)

    def estimate_size(self, files: Sequence[File]) -> SizeEstimate:
        """Estimate the size from the footers."""
        from hyperplane.formats.parquet import footer_size

        return footer_size.estimate_files(files)

    def encode_table(self, table: Any) -> EncodedFile:
        """Return a table as a Parquet file with page checksums."""
        from hyperplane.formats.parquet.write import encode_parquet

        return encode_parquet(table)

    def encode_typed_table(self, table: TypedTable) -> EncodedFile:
        """Return the file that :meth:`encode_table` returns for the frame of pandas."""
        from hyperplane.formats.parquet.write import encode_typed_table

        return encode_typed_table(table)

    def decode_table(self, data: bytes, schema: pa.Schema | None) -> pa.Table:
        """Return the table in a Parquet file, with verified page checksums."""
        from hyperplane.formats.parquet.write import decode_parquet

        return decode_parquet(data)

    def load_columns(self, file: Any, columns: Sequence[str] | None) -> pa.Table:
        """Return columns with verified page checksums."""
        from hyperplane.formats.parquet.write import read_columns

        return read_columns(file, columns)

    def load_schema(self, file: Any) -> pa.Schema:
        """Return the schema in the footer."""
        from hyperplane.formats.parquet.write import read_footer_schema

        return read_footer_schema(file)

    def encode_records(self, items: Sequence[Any]) -> EncodedFile:
        """Encode dicts, which must have the same fields, as a Parquet file."""
        from hyperplane.formats.records import build_table

        return self.encode_table(build_table(items, "parquet"))

    def decode_records(self, data: bytes) -> list[Any]:
        """Return the rows of a Parquet file as dicts."""
        return list(self.decode_table(data, None).to_pylist())
