"""Read partitions as pandas frames, and collections of partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dask.config
import pandas as pd
import polars as pl
import pyarrow as pa

from hyperplane.core.errors import ReadError
from hyperplane.formats.column_mapping import InexactValue
from hyperplane.formats.pandas_frames.to_pandas import to_pandas
from hyperplane.formats.polars_frames import columns
from hyperplane.objectstore import file_names
from hyperplane.objectstore.redaction import describe_error

if TYPE_CHECKING:
    import dask.dataframe as dd

    from hyperplane.formats.partitions import ScannablePartition

#: Number of threads that read footers, headers or samples.
READER_THREADS = 16
#: Exceptions that the libraries raise for damaged files.
DAMAGE = (
    *file_names.DAMAGE_ERRORS,
    OverflowError,
    pa.ArrowException,
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
)


@dataclass(frozen=True, repr=False)
class PartitionReader:
    """Reads a partition as a pandas frame; Dask sets the needed columns.

    Parameters
    ----------
    like : pandas.DataFrame
        An empty frame of all columns (Dask's ``meta``).
    """

    like: pd.DataFrame

    def __call__(
        self, part: ScannablePartition, columns: Sequence[Any] | None = None
    ) -> pd.DataFrame:
        """Read all or some columns of a partition.

        Raises
        ------
        ReadError
            If a file is damaged.
        """
        like = self.like if columns is None else self.like[list(columns)]
        with translate_read_errors(part):
            frame = collect_columns(part, [str(name) for name in like.columns])
        return to_pandas(frame, like)

    def __repr__(self) -> str:
        return f"PartitionReader({len(self.like.columns)} columns)"

    def __dask_tokenize__(self) -> Any:
        return (type(self).__name__, [(str(c), str(t)) for c, t in self.like.dtypes.items()])


def collect_columns(part: ScannablePartition, names: list[str]) -> pl.DataFrame:
    """Read some columns of the filtered rows of a partition."""
    # Partitions that Python code reads avoid the copy of a scan with a separate method.
    collect = getattr(part, "collect", None)
    frame: pl.DataFrame = (
        part.scan().select(columns(names)).collect() if collect is None else collect(names)
    )
    return frame


def make_collection(
    parts: Sequence[ScannablePartition], like: pd.DataFrame, label: str
) -> dd.DataFrame:
    """Return a Dask dataframe of the partitions."""
    # Slow import, not needed by processes that read one shard.
    import dask.dataframe as dd

    # Otherwise Dask adds a step that converts text columns, and other helpers no longer recognize
    # the reader below it.
    with dask.config.set({"dataframe.convert-string": False}):
        return dd.from_map(PartitionReader(like), list(parts), meta=like, label=label)


@dataclass(frozen=True)
class FileUrls:
    """URLs of files that are read outside of a partition, for :func:`translate_read_errors`."""

    urls: tuple[str, ...]


@contextmanager
def translate_read_errors(part: Any) -> Iterator[None]:
    """Convert errors of all libraries while reading a partition to a ReadError of the file.

    Examples
    --------
    ::

        with translate_read_errors(part):
            frame = part.scan().select("price").collect()
    """
    try:
        yield
    except ReadError:
        raise
    except DAMAGE as error:
        urls = part.urls
        damaged = [url for url in urls if url in str(error)] or urls
        damaged = _find_damaged_file(part) or damaged if len(damaged) > 1 else damaged
        more = f" (or one of {len(damaged) - 1} more files)" if len(damaged) > 1 else ""
        raise ReadError(damaged[0] + more, _describe(error, part)) from error


def _describe(error: BaseException, part: Any) -> str:
    if isinstance(error, InexactValue):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return "FileNotFoundError: the file is no longer there; read it again"
    return describe_error(error, _get_storage_options(part)).splitlines()[0]


def _get_storage_options(part: Any) -> Mapping[str, Any]:
    """Return the storage options of a partition, to redact secrets from messages."""
    options: dict[str, Any] = {}
    for item in (part, *getattr(part, "slices", ()), getattr(part, "left", None)):
        store = getattr(getattr(item, "file", None), "store", None)
        options.update(getattr(store, "options", {}))
    return options


def _find_damaged_file(part: Any) -> Sequence[str]:
    """Return the first file that cannot be read alone, because errors of a scan name none."""
    for file_slice in getattr(part, "slices", ()):
        try:
            raw = file_slice.fetch(file_slice.mapping.raw_columns(dict(file_slice.mapping.schema)))
            file_slice.mapping.apply(raw, ()).collect()
        except DAMAGE:
            urls: Sequence[str] = file_slice.urls
            return urls
    return ()
