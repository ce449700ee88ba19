"""Arrow tables as Polars frames, slices included."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa


def as_polars(table: pa.Table) -> pl.DataFrame:
    """A table as a Polars frame.

    Polars (2.1) takes the wrong part of the buffers, or panics, where a slice has lists of a fixed
    size, or dictionaries within other types. Such columns are copied first.

    Examples
    --------
    >>> pairs = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2))
    >>> as_polars(pa.table({"pair": pairs.slice(1)})).rows()
    [(None,), ([3, 4],)]
    """
    some = [place for place, field in enumerate(table.schema) if _must_be_whole(field.type)]
    every = pa.array(np.arange(table.num_rows if some else 0))
    for place in some:
        table = table.set_column(place, table.field(place), table.column(place).take(every))
    return pl.DataFrame(table)


def _must_be_whole(kind: pa.DataType, within: bool = False) -> bool:
    if pa.types.is_fixed_size_list(kind) or (within and pa.types.is_dictionary(kind)):
        return True
    return any(_must_be_whole(kind.field(n).type, True) for n in range(kind.num_fields))
