"""Dask settings for one cluster, without touching the configuration that the user sees.

Dask reads some settings from its process-wide configuration at moments of its own. For these a
cluster's values are put in place for the few microseconds of that reading, under one lock, and
taken out again: two clusters with different values in one process do not meet.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dask.config

_lock = threading.RLock()


@contextmanager
def in_force(settings: Mapping[str, Any]) -> Iterator[None]:
    """Put dotted settings in force for a block that neither awaits nor blocks."""
    with _lock, dask.config.set(dict(settings)):
        yield


@contextmanager
def as_the_user_has_it() -> Iterator[None]:
    """Read the configuration while no other cluster's settings are in force."""
    with _lock:
        yield


def unless_chosen(ours: Mapping[str, Any]) -> dict[str, Any]:
    """Our defaults for dotted keys of Dask, less those that the user has set otherwise.

    A key counts as set by the user when its value is not the one that Dask ships.
    """
    shipped = dask.config.merge(*dask.config.defaults)
    return {
        key: value
        for key, value in ours.items()
        if dask.config.get(key, default=None) == dask.config.get(key, default=None, config=shipped)
    }
