"""Workarounds for three bugs of dask 2026.8.0, installed by ``import hyperplane``.

Tokens of pandas frames
    Dask's token covers the blocks of values but not which column each belongs to. Two frames with
    the same values in different columns get the same token, and ``dd.from_pandas`` of the second
    returns the data of the first.
Cache of expressions
    Dask keeps equal expressions as one object in a weak dictionary, and tests for an entry before
    it reads it. In between, another thread, such as the scheduler of a cluster in this process,
    may drop the last reference. The computation then fails with a ``KeyError``, ``Error during
    deserialization of the task graph``.
Locks of cached properties
    Before Python 3.12 each ``functools.cached_property`` has one lock for all instances. Dask's
    ``divisions`` may compute: with ``repartition(partition_size=...)`` it asks the cluster for the
    sizes of partitions. A scheduler in this process then waits forever in another thread for the
    lock of the same property of another expression.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any

from dask._expr import Expr, SingletonExpr
from dask.tokenize import normalize_token, register_pandas

if TYPE_CHECKING:
    import pandas as pd

#: Lookups that may fail because of the race; any later KeyError has another cause and is raised.
_ATTEMPTS = 5


def install_workarounds() -> None:
    """Install the workarounds in this process, without importing pandas."""
    # Needed even if pandas is loaded: it replaces Dask's lazy registration, which would override
    # this function at a later lookup.
    normalize_token.register_lazy("pandas", _register_tokens)
    if "pandas" in sys.modules:
        _register_tokens()
    if not hasattr(SingletonExpr.__new__, "__wrapped__"):  # this module may be reloaded
        patched = staticmethod(_retry_lookup(SingletonExpr.__new__))
        SingletonExpr.__new__ = patched  # type: ignore[method-assign]
    if sys.version_info < (3, 12) and "__init_subclass__" not in vars(Expr):
        # Most classes are defined when the program imports dask.dataframe.
        Expr.__init_subclass__ = classmethod(_remove_locks)  # type: ignore[assignment,arg-type]
        for each in _find_subclasses(Expr):
            _remove_locks(each)


def _remove_locks(cls: type[Expr], **kwargs: Any) -> None:
    """Let properties of a class be computed without a lock, as in Python 3.12.

    Two threads may compute the same value.
    """
    super(Expr, cls).__init_subclass__(**kwargs)
    for base in cls.__mro__:
        for value in vars(base).values():
            if isinstance(value, cached_property):
                vars(value)["lock"] = nullcontext()


def _find_subclasses(cls: type[Expr]) -> Iterator[type[Expr]]:
    """Yield a class and all classes that are derived from it."""
    yield cls
    for each in cls.__subclasses__():
        yield from _find_subclasses(each)


def _register_tokens() -> None:
    import pandas as pd

    register_pandas()
    normalize_token.register(pd.DataFrame, normalize_frame)


def normalize_frame(frame: pd.DataFrame) -> list[Any]:
    """Return the data that Dask hashes to the token of a frame: dtypes, names, index, values.

    Examples
    --------
    >>> import pandas as pd
    >>> from dask.base import tokenize
    >>> frame = pd.DataFrame({"a": [1, 2], "b": [5, 6], "c": [3.0, 4.0]})
    >>> other = pd.DataFrame({"a": [1, 2], "b": [3.0, 4.0], "c": [5, 6]})
    >>> tokenize(frame) == tokenize(other)
    False
    """
    columns = [frame.iloc[:, number].array for number in range(frame.shape[1])]
    # Dask normalizes values of some types alike, such as int64 and Int64.
    types = [repr(dtype) for dtype in frame.dtypes]
    return [types, *(normalize_token(part) for part in (frame.columns, frame.index, *columns))]


def _retry_lookup(new: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``SingletonExpr.__new__`` that repeats a lookup after a KeyError."""

    @wraps(new)
    def new_with_retries(cls: type, *args: Any, **kwargs: Any) -> Any:
        for _ in range(_ATTEMPTS):
            try:
                return new(cls, *args, **kwargs)
            except KeyError:
                continue
        return new(cls, *args, **kwargs)

    return new_with_retries
