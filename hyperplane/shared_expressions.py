"""Expressions of Dask that several threads of a process share, without a race of Dask's.

Dask keeps one object for equal expressions, for as long as something uses it: it looks whether
there is one, and then takes it. Between the two, another thread may have dropped the last use, as
the scheduler of a cluster in this process does. A computation then failed with a ``KeyError``,
``Error during deserialization of the task graph`` (seen with dask 2026.8.0).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from dask._expr import SingletonExpr

#: Looks in a row that another thread may spoil; a KeyError of another cause comes after these.
_ATTEMPTS = 5


def register() -> None:
    """Have Dask look again where that has happened, from now on, in this process."""
    if not hasattr(SingletonExpr.__new__, "__wrapped__"):  # this module may be loaded again
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
