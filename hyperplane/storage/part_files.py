"""Read the parts of a saved output, verify them, and convert them to dataframes or records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import parquet

from hyperplane.core.errors import ReadError
from hyperplane.formats.avro.encoder import read_avro
from hyperplane.formats.csv.write import from_csv, from_json_lines
from hyperplane.formats.hive_partitions import PartitionKeys
from hyperplane.formats.pandas_frames.from_arrow import to_frame
from hyperplane.formats.parquet.footers import count_leaves
from hyperplane.objectstore.locations import Store
from hyperplane.objectstore.redaction import describe_error
from hyperplane.objectstore.retrying import call_with_retries, is_transient
from hyperplane.objectstore.store_files import ObjectStore
from hyperplane.objectstore.target import Target
from hyperplane.storage.manifest import ManifestEntry
from hyperplane.storage.part_schemas import convert_frame, deserialize_schema

REPLACED = "is gone: another process has replaced it; load it again"
T = TypeVar("T")


@dataclass(frozen=True)
class PartFile:
    """A part, its location, and the values of the columns that are encoded in its folder names."""

    store: Store
    path: str
    part: ManifestEntry
    format: str
    published: str
    keys: PartitionKeys = ()

    @property
    def url(self) -> str:
        """The URL for messages."""
        return Target(self.store, self.path).url

    def read_bytes(self) -> bytes:
        """Read the whole part and verify its size and checksum.

        Raises
        ------
        ReadError
            If the part is gone, or has another size or checksum.
        """
        object_store = ObjectStore(self.store)
        data = object_store.get(self.path)
        if data is None and self.path != self.published:  # copied to the output meanwhile
            data = object_store.get(self.published)
        if data is None:
            raise ReadError(self.url, REPLACED)
        if len(data) != self.part.size:
            raise ReadError(self.url, f"has {len(data)} bytes, but {self.part.size} were saved")
        if self.part.sha256 and hashlib.sha256(data).hexdigest() != self.part.sha256:
            raise ReadError(self.url, "is damaged: its checksum differs; save it again")
        return data

    def _read_retrying(self, read: Callable[[Any], T]) -> T:
        """Call ``read`` with the opened part; retry transient errors of the store."""

        def once() -> T:
            path = self.path
            if path != self.published and not self.store.system.exists(path):
                path = self.published  # copied to the output meanwhile
            with self.store.system.open(path, "rb") as opened:
                return read(opened)

        try:
            return call_with_retries(once, self.url, store=self.store)
        except (OSError, pa.ArrowException) as error:
            cause = error.__cause__ or error
            if is_transient(cause):
                raise
            if isinstance(cause, FileNotFoundError):
                raise ReadError(self.url, REPLACED) from error
            raise ReadError(
                self.url, f"is damaged ({describe_error(cause, self.store.options)})"
            ) from error

    def read_table(self, columns: Sequence[str] | None) -> pa.Table:
        """Read Parquet columns with verified page checksums, and the columns of folder names."""
        keys = {name: value for name, value in self.keys if columns is None or name in columns}
        names = None if columns is None else [name for name in columns if name not in keys]
        table = self._read_retrying(
            lambda opened: parquet.read_table(
                opened,
                columns=names,
                use_threads=False,
                use_pandas_metadata=True,  # includes the index columns
                page_checksum_verification=True,
            )
        )
        for name, value in keys.items():
            table = table.append_column(name, pa.repeat(pa.scalar(value), table.num_rows))
        return table

    def read_schema(self) -> pa.Schema:
        """Read the schema of a Parquet part from its footer."""
        return self._read_retrying(_read_footer_schema)


def _read_footer_schema(opened: Any) -> pa.Schema:
    """Return the schema of a Parquet file; integers and booleans with nulls are ``nullable``."""
    metadata = parquet.read_metadata(opened)
    schema, start = metadata.schema.to_arrow_schema(), 0
    for place, field in enumerate(schema):
        if pa.types.is_integer(field.type) or pa.types.is_boolean(field.type):
            missing = any(
                _may_have_nulls(metadata.row_group(n), start)
                for n in range(metadata.num_row_groups)
            )
            schema = schema.set(place, field.with_nullable(missing))
        start += count_leaves(field.type)
    return schema


def _may_have_nulls(group: Any, leaf: int) -> bool:
    """Return whether a column of a row group may have nulls, by its statistics."""
    statistics = group.column(leaf).statistics
    known = statistics is not None and statistics.has_null_count
    return bool(group.num_rows) and not (known and statistics.null_count == 0)


@dataclass(frozen=True, repr=False)
class FrameReader:
    """Read a part as a dataframe; Dask passes the columns it needs.

    Parameters
    ----------
    like : pandas.DataFrame
        Empty; its columns and types hold the values of all parts.
    """

    like: Any

    def __call__(self, file: PartFile, columns: Sequence[str] | None = None) -> Any:
        """Read a part."""
        like = self.like if columns is None else self.like[list(columns)]
        if file.format == "parquet":
            table = file.read_table(columns)
        else:
            data = file.read_bytes()
            try:
                table = _decode_table(data, file)
            except (ValueError, OverflowError, pa.ArrowException) as error:
                raise ReadError(
                    file.url, f"does not match its saved schema ({describe_error(error)})"
                ) from error
            if columns is not None:
                levels = [name for name in table.column_names if name not in self.like.columns]
                table = table.select([*levels, *like.columns])
        return convert_frame(to_frame(table), like, file.url)


def _decode_table(data: bytes, file: PartFile) -> pa.Table:
    """Return the Arrow table of an Avro, JSON lines, or CSV part."""
    if file.format == "avro":
        return read_avro(data)
    schema = deserialize_schema(file.part.schema)
    if file.format == "jsonl":
        return from_json_lines(data, schema)
    return from_csv(data, schema, "\t" if file.format == "tsv" else ",")


def read_records(file: PartFile) -> list[Any]:
    """Read the items of a part of a bag."""
    if file.format == "parquet":
        return list(file.read_table(None).to_pylist())
    data = file.read_bytes()
    if file.format == "avro":
        return list(read_avro(data).to_pylist())
    # Not splitlines, which also splits at line separators within JSON strings.
    lines = data.decode().split("\n")[:-1]
    return lines if file.format == "text" else [json.loads(line) for line in lines]
