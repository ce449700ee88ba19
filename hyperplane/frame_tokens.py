"""Tokens of pandas frames, so that Dask never takes one frame for another.

Dask names a collection after the values in its frame, block by block: not after the columns that
the blocks are. Of two frames with the same values in other columns, it gives the data of the first
for both: ``dd.from_pandas`` of the second is the first (seen with dask 2026.8.0).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from dask.tokenize import normalize_token, register_pandas

if TYPE_CHECKING:
    import pandas as pd


def tokenize_frame(frame: pd.DataFrame) -> list[Any]:
    """What Dask makes the token of a frame from: each column in its place.

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
    # Of several types, as int64 and Int64, Dask sees the same values.
    types = [repr(dtype) for dtype in frame.dtypes]
    return [types, *(normalize_token(part) for part in (frame.columns, frame.index, *columns))]


def register() -> None:
    """Have Dask use it from now on, in this process; loads no pandas."""
    # Also where pandas is loaded: this takes the place of Dask's own registration, which would
    # run at a later lookup and replace the function.
    normalize_token.register_lazy("pandas", _register)
    if "pandas" in sys.modules:
        _register()


def _register() -> None:
    import pandas as pd

    register_pandas()
    normalize_token.register(pd.DataFrame, tokenize_frame)
