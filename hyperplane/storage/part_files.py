"""The parts of what was saved: their bytes checked, and made frames or records of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import parquet

from hyperplane.collections.frames.sources.footers import count_leaves
from hyperplane.collections.frames.sources.hive_partitions import PartitionKeys
from hyperplane.errors import ReadError
from hyperplane.storage.avro import read_avro
from hyperplane.storage.manifest import Part
from hyperplane.storage.part_frames import to_frame
from hyperplane.storage.part_schemas import fitted, restored_schema
from hyperplane.storage.retrying import attempt, passes
from hyperplane.storage.shelf import Shelf
from hyperplane.storage.target import Target
from hyperplane.storage.text_tables import from_csv, from_json_lines
from hyperplane.stores.places import Store
from hyperplane.stores.secrets import said

GONE = "is gone: somebody has replaced it; load it again"
T = TypeVar("T")


@dataclass(frozen=True)
class PartFile:
    """A part, where it lies, and columns of one value, which are in the names of its folders."""

    store: Store
    path: str
    part: Part
    format: str
    published: str
    keys: PartitionKeys = ()

    @property
    def url(self) -> str:
        """The part, for messages."""
        return Target(self.store, self.path).url

    def data(self) -> bytes:
        """All bytes of it.

        Raises
        ------
        ReadError
            When it is gone, or is not what was written, by its size and its checksum.
        """
        shelf = Shelf(self.store)
        found = shelf.get(self.path)
        if found is None and self.path != self.published:  # copied since, to where all look
            found = shelf.get(self.published)
        if found is None:
            raise ReadError(self.url, GONE)
        if len(found) != self.part.size:
            raise ReadError(self.url, f"has {len(found)} bytes, and {self.part.size} were saved")
        if self.part.sha256 and hashlib.sha256(found).hexdigest() != self.part.sha256:
            raise ReadError(self.url, "is damaged: other bytes were saved; save it again")
        return found

    def _read(self, read: Callable[[Any], T]) -> T:
        def once() -> T:
            path = self.path
            if path != self.published and not self.store.system.exists(path):
                path = self.published  # copied since, to where all look
            with self.store.system.open(path, "rb") as opened:
                return read(opened)

        try:
            return attempt(once, self.url, store=self.store)
        except (OSError, pa.ArrowException) as error:
            cause = error.__cause__ or error
            if passes(cause):
                raise
            if isinstance(cause, FileNotFoundError):
                raise ReadError(self.url, GONE) from error
            raise ReadError(self.url, f"is damaged ({said(cause, self.store.options)})") from error

    def table(self, columns: Sequence[str] | None) -> pa.Table:
        """Some columns of Parquet, their checksums compared, and of the names of folders."""
        keys = {name: value for name, value in self.keys if columns is None or name in columns}
        names = None if columns is None else [name for name in columns if name not in keys]
        table = self._read(
            lambda opened: parquet.read_table(
                opened,
                columns=names,
                use_threads=False,
                use_pandas_metadata=True,  # the index, too
                page_checksum_verification=True,
            )
        )
        for name, value in keys.items():
            table = table.append_column(name, pa.repeat(pa.scalar(value), table.num_rows))
        return table

    def schema(self) -> pa.Schema:
        """Columns and types of a part that are not recorded; of Parquet, from its footer."""
        return self._read(_footer_schema)


def _footer_schema(opened: Any) -> pa.Schema:
    """The schema of a Parquet file, with ``nullable`` for columns of numbers that lack values."""
    metadata = parquet.read_metadata(opened)
    schema, start = metadata.schema.to_arrow_schema(), 0
    for place, field in enumerate(schema):
        if pa.types.is_integer(field.type) or pa.types.is_boolean(field.type):
            missing = any(
                _lacks(metadata.row_group(n), start) for n in range(metadata.num_row_groups)
            )
            schema = schema.set(place, field.with_nullable(missing))
        start += count_leaves(field.type)
    return schema


def _lacks(group: Any, leaf: int) -> bool:
    statistics = group.column(leaf).statistics
    known = statistics is not None and statistics.has_null_count
    return bool(group.num_rows) and not (known and statistics.null_count == 0)


@dataclass(frozen=True, repr=False)
class FrameReader:
    """Makes the frame of a part; Dask pushes the needed columns into it.

    Parameters
    ----------
    like : pandas.DataFrame
        No rows; the columns and types that hold the values of all parts.
    """

    like: Any

    def __call__(self, file: PartFile, columns: Sequence[str] | None = None) -> Any:
        """Read a part."""
        like = self.like if columns is None else self.like[list(columns)]
        if file.format == "parquet":
            table = file.table(columns)
        else:
            data = file.data()
            try:
                table = _decoded(data, file)
            except (ValueError, OverflowError, pa.ArrowException) as error:
                raise ReadError(file.url, f"is not what was saved ({said(error)})") from error
            if columns is not None:
                levels = [name for name in table.column_names if name not in self.like.columns]
                table = table.select([*levels, *like.columns])
        return fitted(to_frame(table), like, file.url)


def _decoded(data: bytes, file: PartFile) -> pa.Table:
    if file.format == "avro":
        return read_avro(data)
    schema = restored_schema(file.part.schema)
    if file.format == "jsonl":
        return from_json_lines(data, schema)
    return from_csv(data, schema, "\t" if file.format == "tsv" else ",")


def read_records(file: PartFile) -> list[Any]:
    """The items of a part of a bag."""
    if file.format == "parquet":
        return list(file.table(None).to_pylist())
    data = file.data()
    if file.format == "avro":
        return list(read_avro(data).to_pylist())
    # Not splitlines: JSON may hold other ends of lines as they are.
    lines = data.decode().split("\n")[:-1]
    return lines if file.format == "text" else [json.loads(line) for line in lines]
