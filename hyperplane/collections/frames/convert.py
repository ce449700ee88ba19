"""Between pandas and Polars, with the column types that pandas users expect."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from dask.dataframe.utils import UNKNOWN_CATEGORIES


def from_pandas(frame: pd.DataFrame) -> pl.DataFrame:
    """A pandas frame as a Polars frame: NaN and NaT become null, the index is left out.

    Raises
    ------
    pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, pyarrow.ArrowNotImplementedError
        When a column of objects has no common type.
    """
    frame = frame.copy(deep=False)
    for position, dtype in enumerate(frame.dtypes):
        if isinstance(dtype, pd.DatetimeTZDtype) and not _named(dtype):
            # Polars has no time zones of a fixed offset; the instants are what counts.
            frame.isetitem(position, frame.iloc[:, position].dt.tz_convert("UTC"))
    converted = pl.DataFrame(pa.Table.from_pandas(frame, preserve_index=False))
    categories = [
        name for name, dtype in converted.schema.items() if isinstance(dtype, pl.Categorical)
    ]
    # Columns of Arrow types may hold NaN beside null; those of numpy have become null above.
    arrow = [name for name, dtype in frame.dtypes.items() if isinstance(dtype, pd.ArrowDtype)]
    floats = [str(name) for name in arrow if converted.schema[str(name)].is_float()]
    return converted.with_columns(
        pl.col(floats).fill_nan(None),
        # Codes differ from partition to partition; values do not.
        pl.col(categories).cast(pl.String),
    )


def _named(dtype: pd.DatetimeTZDtype) -> bool:
    name = getattr(dtype.tz, "key", None) or getattr(dtype.tz, "zone", None) or str(dtype.tz)
    return bool(name) and not name.startswith(("+", "-", "UTC+", "UTC-", "pytz.FixedOffset"))


def to_pandas(frame: pl.DataFrame, like: pd.DataFrame) -> pd.DataFrame:
    """A Polars frame as pandas, with the columns and types of an example.

    Parameters
    ----------
    frame : polars.DataFrame
        Has at least the columns of the example.
    like : pandas.DataFrame
        Columns and types; its rows do not matter. A numpy integer type becomes float64 where
        values are missing, as in pandas.

    Examples
    --------
    >>> like = pd.DataFrame({"user": pd.Series(dtype="str"), "n": pd.Series(dtype="int64")})
    >>> to_pandas(pl.DataFrame({"n": [1, 2], "user": ["a", None]}), like).dtypes.to_list()
    [<StringDtype(na_value=nan)>, dtype('int64')]
    """
    columns = {
        position: column_to_pandas(frame.get_column(str(name)), dtype)
        for position, (name, dtype) in enumerate(like.dtypes.items())
    }
    made = pd.DataFrame(columns, index=pd.RangeIndex(frame.height), copy=False)
    made.columns = like.columns
    return made


def column_to_pandas(column: pl.Series, dtype: Any) -> Any:
    """One column as an array of a pandas type."""
    column = column.alias("values")  # to methods of Polars a name such as ^x$ is a pattern
    if isinstance(dtype, pd.CategoricalDtype):
        if not known_categories(dtype):
            return pd.Categorical(column_to_pandas(column, np.dtype(object)))
        inner = dtype.categories.dtype if dtype.categories is not None else np.dtype(object)
        return pd.Categorical(column_to_pandas(column, inner), dtype=dtype)
    if isinstance(dtype, pd.DatetimeTZDtype):
        instants = column.dt.replace_time_zone(None) if _zone(column) is None else column
        if _zone(column) is not None:
            instants = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        index = pd.DatetimeIndex(instants.to_numpy()).as_unit(dtype.unit)
        return index.tz_localize("UTC").tz_convert(dtype.tz).array
    if isinstance(dtype, pd.StringDtype) and column.dtype != pl.String:
        column = column.cast(pl.String)
    if hasattr(dtype, "__from_arrow__"):
        arrow = column.to_arrow()
        wanted = _arrow_type(dtype)
        return dtype.__from_arrow__(arrow if wanted is None else arrow.cast(wanted))
    if dtype.kind == "O":
        return _objects(column)
    return _numpy(column, dtype)


def known_categories(dtype: Any) -> bool:
    """Whether a type of categories says which; Dask has one that does not."""
    return dtype.categories is not None and UNKNOWN_CATEGORIES not in dtype.categories


def _zone(column: pl.Series) -> str | None:
    return column.dtype.time_zone if isinstance(column.dtype, pl.Datetime) else None


def _arrow_type(dtype: Any) -> pa.DataType | None:
    if isinstance(dtype, pd.ArrowDtype):
        return dtype.pyarrow_dtype
    name = getattr(dtype, "numpy_dtype", None)
    return None if name is None else pa.from_numpy_dtype(name)


def _objects(column: pl.Series) -> Any:
    values = np.empty(len(column), dtype=object)  # filled in place: numpy would look into lists
    values[:] = column.to_list()
    values[column.is_null().to_numpy()] = np.nan
    return pd.Series(values, dtype=object)


def _numpy(column: pl.Series, dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "b" and column.null_count():
        return _objects(column)
    if dtype.kind in "iu" and column.null_count():
        return column.cast(pl.Float64).to_numpy()
    if column.dtype == pl.Date:
        column = column.cast(pl.Datetime("ms"))
    return column.to_numpy().astype(dtype, copy=False)
