"""Deterministic tokens of pandas frames that include the assignment of values to columns.

Dask's own token covers the blocks of values but not which column each belongs to. Two frames with
the same values in different columns get the same token, and ``dd.from_pandas`` of the second
returns the data of the first (dask 2026.8.0).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from dask.tokenize import normalize_token, register_pandas

if TYPE_CHECKING:
    import pandas as pd


def tokenize_frame(frame: pd.DataFrame) -> list[Any]:
    """Data that Dask computes the token of a frame from: types, labels, index, columns.

    Examples
    --------
    >>> import pandas as pd
    >>> from dask.base import tokenize
    >>> one = pd.DataFrame({"a": [1, 2], "b": [5, 6], "c": [3.0, 4.0]})
    >>> other = pd.DataFrame({"a": [1, 2], "b": [3.0, 4.0], "c": [5, 6]})
    >>> tokenize(one) == tokenize(other)
    False
    """
    columns = [frame.iloc[:, place].array for place in range(frame.shape[1])]
    # Dask normalizes values of some types alike, such as int64 and Int64.
    types = [repr(dtype) for dtype in frame.dtypes]
    return [types, *(normalize_token(part) for part in (frame.columns, frame.index, *columns))]


def register() -> None:
    """Register the function with Dask in this process, without importing pandas."""
    # Needed even if pandas is loaded: it replaces Dask's lazy registration, which would override
    # this function at a later lookup.
    normalize_token.register_lazy("pandas", _register)
    if "pandas" in sys.modules:
        _register()


def _register() -> None:
    import pandas as pd

    register_pandas()
    normalize_token.register(pd.DataFrame, tokenize_frame)
