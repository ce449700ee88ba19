"""Polars tables with pandas types, which can be saved without a conversion to pandas."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from hyperplane.formats.pandas_frames.to_arrow import to_arrow
from hyperplane.formats.pandas_frames.to_pandas import allow_missing, to_pandas

_PANDAS_KEY = b"pandas"


@dataclass(frozen=True, eq=False)
class TypedTable:
    """Rows, and the pandas types of their columns.

    Parameters
    ----------
    frame : polars.DataFrame
        The rows; missing values are null.
    like : pandas.DataFrame
        Columns and types; rows are ignored.
    """

    frame: pl.DataFrame
    like: pd.DataFrame

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas frame of these types."""
        return to_pandas(self.frame, self.like)

    def to_arrow(self) -> tuple[pa.Table, pa.Schema] | None:
        """Return the rows as Arrow, and the schema that Arrow gives to the frame of pandas.

        Text is not copied: its columns are views, where the schema has large strings. None if the
        types of the frame of pandas depend on the values, or are not among the common ones.
        """
        like = self.like
        if not all(isinstance(name, str) for name in like.columns) or not like.columns.is_unique:
            return None
        kept = [(self.frame.get_column(str(name)), dtype) for name, dtype in like.dtypes.items()]
        if not kept or not all(_is_kept(column, dtype) for column, dtype in kept):
            return None
        schema = self._find_schema([allow_missing(column, dtype) for column, dtype in kept])
        arrays = [_to_view(column) for column, _ in kept]
        wanted = [pa.string_view() if pa.types.is_large_string(t) else t for t in schema.types]
        if [array.type for array in arrays] != wanted:
            return None
        return pa.table(arrays, names=schema.names), schema

    def _find_schema(self, dtypes: list[Any]) -> pa.Schema:
        """Return the schema of a pandas frame with these types and this number of rows."""
        columns = {
            position: pd.Series(["a" if isinstance(dtype, pd.StringDtype) else 1]).astype(dtype)
            for position, dtype in enumerate(dtypes)
        }
        example = pd.DataFrame(columns)
        example.columns = self.like.columns
        schema = to_arrow(example, "Arrow").schema
        metadata = dict(schema.metadata)
        described = json.loads(metadata[_PANDAS_KEY])
        described["index_columns"][0]["stop"] = self.frame.height
        metadata[_PANDAS_KEY] = json.dumps(described).encode()
        return schema.with_metadata(metadata)

    def __sizeof__(self) -> int:
        """Return the bytes, for Dask."""
        return int(self.frame.estimated_size())


def _is_kept(column: pl.Series, dtype: Any) -> bool:
    """Return whether the values of a column are those of its pandas type, which is a common one."""
    kind: Any = column.dtype
    if column.null_count() == len(column):
        return False
    if isinstance(dtype, pd.StringDtype):
        return bool(kind == pl.String)
    if not isinstance(dtype, np.dtype):
        return False
    if dtype.kind == "b":
        return bool(kind == pl.Boolean) and not column.null_count()
    if dtype.kind == "M":
        unit = np.datetime_data(dtype)[0]  # Polars has no seconds
        return isinstance(kind, pl.Datetime) and (kind.time_unit, kind.time_zone) == (unit, None)
    return dtype.kind in "iuf" and str(kind).lower() == str(dtype)


def _to_view(column: pl.Series) -> pa.Array:
    """Return a column as Arrow; pandas has no NaN besides missing values."""
    if column.dtype.is_float():
        column = column.fill_nan(None)
    return column.to_arrow(compat_level=pl.CompatLevel.newest())
