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
        The first format that has a suffix gets its files; those of other packages come last.
    """

    name: str
    suffixes: tuple[str, ...]


@runtime_checkable
class SupportsRead(FileFormat, Protocol):
    """A format that :func:`hyperplane.dataframe.read` reads.

    Attributes
    ----------
    read_options : tuple of str
        Arguments of ``read`` that only some formats accept, such as ``"separator"``, and that this
        one accepts. Others are refused before the format is called.
    """

    read_options: tuple[str, ...]

    def plan_partitions(
        self, files: Sequence[File], request: ReadRequest, options: Mapping[str, Any]
    ) -> ReadPlan:
        """Plan the partitions, at least one, that have each row of the files once, in order.

        Parameters
        ----------
        files : sequence of File
            At least one, in the order of the rows.
        request : ReadRequest
            The arguments that all formats have.
        options : mapping of str to object
            The given ones of ``read_options``.

        Raises
        ------
        RequestError
            With everything that is wrong with the options, or does not match the files.
        ReadError
            When a file is damaged and ``request.on_error`` is not ``"skip"``.
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
        """Plan the rows of one of ``count`` shards as one partition, or none if it has no rows.

        The shards by ``index`` have all rows once, in order. Each process calls this for its own
        shard only, so that the boundaries follow from the files, ``options`` and ``count`` alone.
        Parameters and errors are those of ``plan_partitions``.
        """
        ...


class SizeEstimate(NamedTuple):
    """Bytes of files in memory, uncompressed, and a description of the method."""

    size: int
    how: str


@runtime_checkable
class SupportsSize(FileFormat, Protocol):
    """A format of which :func:`hyperplane.size_cluster` estimates the size in memory."""

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
        The table with the types that the file holds; not given for records.
    """

    data: Any
    rows: int
    table: pa.Table | None = None


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
            With the column's name, if a table that is read back would have other values.
        """
        ...

    def decode_table(self, data: bytes, schema: pa.Schema | None) -> Any:
        """Return the table in a file, as an Arrow table.

        Parameters
        ----------
        data : bytes
            The file.
        schema : pyarrow.Schema or None
            The recorded schema of the table that ``encode_table`` has returned. None for a single
            file, whose types are inferred if the format does not hold them; the table may be a
            pandas dataframe then.

        Raises
        ------
        ValueError, pyarrow.ArrowException
            If the file is damaged or does not match the schema.
        """
        ...


@runtime_checkable
class SupportsSaveRecords(FileFormat, Protocol):
    """A format of the items of bags for :func:`hyperplane.save` and :func:`hyperplane.load`.

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
            With the item's number, if it would not be loaded unchanged.
        """
        ...

    def decode_records(self, data: bytes) -> list[Any]:
        """Return the items in a file."""
        ...


@runtime_checkable
class SupportsColumnLoad(SupportsSave, Protocol):
    """A format whose files hold their schema, and of which single columns can be verified."""

    def load_columns(self, file: Any, columns: Sequence[str] | None) -> pa.Table:
        """Return columns, or all, and the index of an opened file; raise if they are damaged."""
        ...

    def load_schema(self, file: Any) -> pa.Schema:
        """Return the schema of an opened file, with ``nullable`` for columns that have nulls."""
        ...
