"""Interfaces of file formats, one for each public function that uses a format.

A format is one class that is registered by name. Its module imports the libraries of the format in
its methods, so that all formats can be listed without them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa

    from hyperplane.formats.request import ReadPlan, ReadRequest
    from hyperplane.objectstore.locations import File


@runtime_checkable
class FileFormat(Protocol):
    """A file format.

    Attributes
    ----------
    name : str
        The name under which it is registered.
    suffixes : tuple of str
        Suffixes in lower case, such as ``".parquet"``, of the files that are read as this format.
        If several formats have a suffix, the first in the registry reads its files; formats of
        other packages come last.
    """

    name: str
    suffixes: tuple[str, ...]


@runtime_checkable
class SupportsRead(FileFormat, Protocol):
    """A format that :func:`hyperplane.dataframe.read` reads.

    Attributes
    ----------
    read_options : tuple of str
        Names of the optional arguments of ``read`` that this format accepts, such as
        ``"separator"``. Others are refused before the format is called. CONTRIBUTING.md, *Add an
        option of read*, has the files to edit.
    """

    read_options: tuple[str, ...]

    def plan_partitions(
        self, files: Sequence[File], request: ReadRequest, options: Mapping[str, Any]
    ) -> ReadPlan:
        """Plan at least one partition; together they have each row once, in order.

        Parameters
        ----------
        files : sequence of File
            At least one, in the order of the rows.
        request : ReadRequest
            The arguments that all formats have.
        options : mapping of str to object
            Those of ``read_options`` that the caller has set.

        Raises
        ------
        RequestError
            If an option is invalid or the request does not match the files; the error lists
            all faults.
        ReadError
            If a file is damaged and ``request.on_error`` is not ``"skip"``.
        """
        ...


@runtime_checkable
class SupportsRowShards(SupportsRead, Protocol):
    """A format whose rows :func:`hyperplane.shard_rows` divides."""

    def plan_shard(
        self,
        files: Sequence[File],
        request: ReadRequest,
        options: Mapping[str, Any],
        index: int,
        count: int,
    ) -> ReadPlan:
        """Plan one of ``count`` shards: one partition, or none if the shard has no rows.

        Together the shards have each row once, in the order of ``index``. Each process calls this
        for its own shard only, so the boundaries must depend on nothing but the files, ``options``
        and ``count``. The other parameters and the errors are those of ``plan_partitions``.
        """
        ...


class SizeEstimate(NamedTuple):
    """Bytes of files in memory, uncompressed, and a description of the method."""

    size: int
    how: str


@runtime_checkable
class SupportsSize(FileFormat, Protocol):
    """A format of files whose size in memory :func:`hyperplane.size_cluster` estimates."""

    def estimate_size(self, files: Sequence[File]) -> SizeEstimate:
        """Estimate the size of all files from metadata or from samples of a few."""
        ...


@dataclass(frozen=True)
class EncodedFile:
    """The bytes of a file that holds a table or records.

    Parameters
    ----------
    data : bytes-like
        Content.
    rows : int
        Rows or records.
    table : pyarrow.Table, optional
        The table, with the types that the file holds; None for records.
    schema : pyarrow.Schema, optional
        The types that the file holds, if they are not those of the table.
    """

    data: Any
    rows: int
    table: pa.Table | None = None
    schema: pa.Schema | None = None


@runtime_checkable
class SupportsSave(FileFormat, Protocol):
    """A format of tables for :func:`hyperplane.save` and :func:`hyperplane.load`.

    Attributes
    ----------
    saved_suffixes : tuple of str
        Suffixes of the names for which ``save`` writes this format; part files have the first one.
    read_arguments : mapping of str to object
        Arguments of :func:`hyperplane.dataframe.read` for files of other programs.
    """

    saved_suffixes: tuple[str, ...]
    read_arguments: Mapping[str, Any]

    def encode_table(self, table: Any) -> EncodedFile:
        """Return a pandas, Polars or Arrow table as a file; equal tables give equal bytes.

        Raises
        ------
        DataError
            If a column would have other values when it is read back; the error names the column.
        """
        ...

    def decode_table(self, data: bytes, schema: pa.Schema | None) -> Any:
        """Return the table in a file, usually as an Arrow table.

        Parameters
        ----------
        data : bytes
            The file.
        schema : pyarrow.Schema or None
            The schema of ``EncodedFile.table``, as recorded in the manifest. None for a single
            file without a manifest: if the format does not hold types, they are inferred, and the
            result may be a pandas dataframe.

        Raises
        ------
        ValueError, pyarrow.ArrowException
            If the file is damaged or does not match the schema.
        """
        ...


@runtime_checkable
class SupportsSaveRecords(FileFormat, Protocol):
    """A format of records, the items of bags, for :func:`hyperplane.save` and ``load``.

    Attributes
    ----------
    saved_suffixes : tuple of str
        As for :class:`SupportsSave`.
    """

    saved_suffixes: tuple[str, ...]

    def encode_records(self, items: Sequence[Any]) -> EncodedFile:
        """Return items as a file.

        Raises
        ------
        WrongType
            If an item would not be loaded unchanged; the error has the number of the item.
        """
        ...

    def decode_records(self, data: bytes) -> list[Any]:
        """Return the items in a file."""
        ...


@runtime_checkable
class SupportsColumnLoad(SupportsSave, Protocol):
    """A format whose files hold their schema, and whose columns can be loaded separately."""

    def load_columns(self, file: Any, columns: Sequence[str] | None) -> pa.Table:
        """Return some or all columns of an opened file, and the index; raise if it is damaged."""
        ...

    def load_schema(self, file: Any) -> pa.Schema:
        """Return the schema of an opened file, with ``nullable`` for columns that have nulls."""
        ...
