"""Interfaces of file formats, one for each public function that uses a format.

A format is one class that is registered by name. Its module imports the libraries of the format in
its methods, so that all formats can be listed without them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
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
        The arguments of ``read`` that not all formats have and this one does, such as
        ``"separator"``. Others are refused before the format is called.
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
    """Bytes of files in memory, uncompressed, and a text on how they were determined."""

    size: int
    how: str


@runtime_checkable
class SupportsSize(FileFormat, Protocol):
    """A format of which :func:`hyperplane.size_cluster` estimates the size in memory."""

    def estimate_size(self, files: Sequence[File]) -> SizeEstimate:
        """Estimate the size of all files from metadata or from samples of a few."""
        ...


@runtime_checkable
class SupportsWrite(FileFormat, Protocol):
    """A format in which :func:`hyperplane.save` writes tables.

    Attributes
    ----------
    saved_suffixes : tuple of str
        Suffixes of the names for which ``save`` writes this format; part files have the first one.
    """

    saved_suffixes: tuple[str, ...]

    def encode(self, table: Any) -> Any:
        """Return the bytes of a file of a table, with the number of rows and the schema."""
        ...


@runtime_checkable
class SupportsLoad(FileFormat, Protocol):
    """A format whose files :func:`hyperplane.load` returns as dataframes."""

    def decode(self, data: bytes) -> Any:
        """Return the dataframe that a file holds."""
        ...
