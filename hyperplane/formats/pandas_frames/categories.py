"""Types of categorical columns, and how their values are stored outside pandas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from hyperplane.formats.pandas_frames.lossless_dtypes import get_arrow_type, nullable_dtype


def has_known_categories(dtype: Any) -> bool:
    """Return whether the categories of a type are known; Dask has a marker for unknown ones."""
    # Imported late: processes that read one shard do not need dask.dataframe.
    from dask.dataframe.utils import UNKNOWN_CATEGORIES

    return dtype.categories is not None and UNKNOWN_CATEGORIES not in dtype.categories


def is_stored_as_codes(dtype: Any) -> bool:
    """Return whether categories are converted to codes: all but text, numbers and times."""
    if not has_known_categories(dtype):
        return False
    inner = dtype.categories.dtype
    return not is_text(inner, dtype.categories) and get_arrow_type(inner) is None


def is_text(inner: Any, categories: Any = ()) -> bool:
    """Return whether categories of type ``inner`` are text; of objects, all must be strings."""
    if isinstance(inner, pd.StringDtype):
        return True
    return bool(inner == np.dtype(object)) and all(isinstance(each, str) for each in categories)


def decode_categories(values: pd.Series[Any]) -> Any:
    """Return the values of a categorical column, in the type of the categories."""
    inner = values.cat.categories
    codes = values.cat.codes.to_numpy()
    if isinstance(inner.dtype, np.dtype) and inner.dtype.kind in "biu" and (codes < 0).any():
        inner = inner.astype(nullable_dtype(inner.dtype))
    return pd.Series(inner.array.take(codes, allow_fill=True))
