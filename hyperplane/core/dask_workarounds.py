"""Workarounds for bugs in Dask, active in each process that imports this package."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from dask.tokenize import normalize_token, register_pandas

from hyperplane.core.dask_internals.tasks import SingletonExpr

if TYPE_CHECKING:
    import pandas as pd

#: Lookups that may fail because of the race; any later KeyError has another cause and is raised.
_ATTEMPTS = 5


def register() -> None:
    """Activate all workarounds in this process, without importing pandas."""
    _register_frame_tokens()
    _register_expression_lookup()


def tokenize_frame(frame: pd.DataFrame) -> list[Any]:
    """Return the data from which Dask computes the token of a frame: types, index and columns.

    Dask's own token covers the blocks of values but not which column each belongs to. Two frames
    with the same values in different columns get the same token, and ``dd.from_pandas`` of the
    second returns the data of the first (dask 2026.8.0).

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


def _register_frame_tokens() -> None:
    # Needed even if pandas is loaded: it replaces Dask's lazy registration, which would override
    # this function at a later lookup.
    normalize_token.register_lazy("pandas", _register_tokenize_frame)
    if "pandas" in sys.modules:
        _register_tokenize_frame()


def _register_tokenize_frame() -> None:
    import pandas as pd

    register_pandas()
    normalize_token.register(pd.DataFrame, tokenize_frame)


def _register_expression_lookup() -> None:
    """Make Dask repeat the lookup of an expression in its cache if it fails.

    Dask keeps equal expressions as one object in a weak dictionary, and tests for an entry before
    it reads it. In between, another thread, such as the scheduler of a cluster in this process, may
    drop the last reference. The computation then fails with a ``KeyError``, ``Error during
    deserialization of the task graph`` (dask 2026.8.0).
    """
    if not hasattr(SingletonExpr.__new__, "__wrapped__"):  # this module may be reloaded
        patched = staticmethod(_retry_lookup(SingletonExpr.__new__))
        SingletonExpr.__new__ = patched  # type: ignore[method-assign]


def _retry_lookup(new: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(new)
    def new_with_retries(cls: type, *args: Any, **kwargs: Any) -> Any:
        for _ in range(_ATTEMPTS):
            try:
                return new(cls, *args, **kwargs)
            except KeyError:
                continue
        return new(cls, *args, **kwargs)

    return new_with_retries
