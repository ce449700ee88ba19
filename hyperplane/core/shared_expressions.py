"""Workaround for a race in Dask's cache of expressions between threads of one process.

Dask keeps equal expressions as one object in a weak dictionary, and tests for an entry before it
reads it. In between, another thread, such as the scheduler of a cluster in this process, may drop
the last reference. The computation then fails with a ``KeyError``, ``Error during deserialization
of the task graph`` (dask 2026.8.0).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from hyperplane.core.dask_internals.tasks import SingletonExpr

#: Lookups that may fail because of the race; any later KeyError has another cause and is raised.
_ATTEMPTS = 5


def register() -> None:
    """Make Dask repeat such a lookup in this process."""
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
