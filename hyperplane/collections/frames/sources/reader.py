"""The function that makes a pandas frame of a part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dask.config
import pandas as pd
import polars as pl
import pyarrow as pa

from hyperplane.collections.frames.convert import to_pandas
from hyperplane.collections.frames.sources.names import columns
from hyperplane.collections.frames.sources.recipe import InexactValue
from hyperplane.errors import ReadError
from hyperplane.stores import naming
from hyperplane.stores.secrets import said

if TYPE_CHECKING:
    import dask.dataframe as dd

    from hyperplane.collections.frames.partitions import ScannablePartition

#: What reading a damaged file can raise, in any of the libraries below.
DAMAGE = (
    *naming.DAMAGE,
    OverflowError,
    pa.ArrowException,
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
)


@dataclass(frozen=True, repr=False)
class PartReader:
    """Makes the pandas frame of a part; Dask pushes the needed columns into it.

    Parameters
    ----------
    like : pandas.DataFrame
        No rows; all columns with their types.
    """

    like: pd.DataFrame

    def __call__(
        self, part: ScannablePartition, columns: Sequence[Any] | None = None
    ) -> pd.DataFrame:
        """Read a part.

        Parameters
        ----------
        part : Part
            The rows.
        columns : sequence, optional
            The columns, in order; all when not given.

        Raises
        ------
        ReadError
            When a file is damaged.
        """
        like = self.like if columns is None else self.like[list(columns)]
        with reading(part):
            frame = _collected(part, [str(name) for name in like.columns])
        return to_pandas(frame, like)

    def __repr__(self) -> str:
        return f"PartReader({len(self.like.columns)} columns)"

    def __dask_tokenize__(self) -> Any:
        return (type(self).__name__, [(str(c), str(t)) for c, t in self.like.dtypes.items()])


def _collected(part: ScannablePartition, names: list[str]) -> pl.DataFrame:
    # Parts that Python code reads can do without the copy that a scan of them makes.
    collected = getattr(part, "collected", None)
    frame: pl.DataFrame = (
        part.scan().select(columns(names)).collect() if collected is None else collected(names)
    )
    return frame


def of_parts(parts: Sequence[ScannablePartition], like: pd.DataFrame, label: str) -> dd.DataFrame:
    """A collection with one partition for each part."""
    # Imported late: processes that read one shard need no data frames of Dask.
    import dask.dataframe as dd

    # Dask would otherwise convert text that is Arrow text already, and hide the reader.
    with dask.config.set({"dataframe.convert-string": False}):
        return dd.from_map(PartReader(like), list(parts), meta=like, label=label)


@contextmanager
def reading(part: Any) -> Iterator[None]:
    """Name the damaged file, whatever library found it while a part was collected.

    Examples
    --------
    ::

        with reading(part):
            frame = part.scan().select("price").collect()
    """
    try:
        yield
    except ReadError:
        raise
    except DAMAGE as error:
        urls = part.urls
        named = [url for url in urls if url in str(error)] or urls
        named = _damaged(part) or named if len(named) > 1 else named
        more = f" (or one of {len(named) - 1} more files)" if len(named) > 1 else ""
        exact = isinstance(error, InexactValue)
        wrong = str(error) if exact else said(error, _options(part)).splitlines()[0]
        raise ReadError(named[0] + more, wrong) from error


def _options(part: Any) -> Mapping[str, Any]:
    """What the stores of a part were given, which an error may repeat; secrets among it."""
    found: dict[str, Any] = {}
    for one in (part, *getattr(part, "units", ()), getattr(part, "left", None)):
        store = getattr(getattr(one, "file", None), "store", None)
        found.update(getattr(store, "options", {}))
    return found


def _damaged(part: Any) -> Sequence[str]:
    """The first file of a part that cannot be read by itself: a scan of many names none."""
    for unit in getattr(part, "units", ()):
        try:
            raw = unit.fetch(unit.recipe.raw(dict(unit.recipe.schema)))
            unit.recipe.applied(raw, ()).collect()
        except DAMAGE:
            urls: Sequence[str] = unit.urls
            return urls
    return ()
