"""Dask settings for one cluster, without touching the configuration that the user sees.

Dask reads some settings from its process-wide configuration at moments of its own. For these a
cluster's values are put in place for the few microseconds of that reading, under one lock, and
taken out again: two clusters with different values in one process do not meet.

What a client reads, as it turns a collection into a graph, is another matter: that happens in the
user's own calls. Those settings stand in the configuration for as long as the cluster is there,
as Dask's own setting ``scheduler`` does for a client.
"""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dask.config

_lock = threading.RLock()
#: What clusters want of clients by the clusters' names, oldest first.
_wanted: dict[str, dict[str, Any]] = {}
#: What of it stands in the configuration.
_lent: dict[str, Any] = {}


@contextmanager
def in_force(settings: Mapping[str, Any]) -> Iterator[None]:
    """Put dotted settings in force for a block that neither awaits nor blocks."""
    with _lock, dask.config.set({**_of_the_user(), **settings}):
        yield


@contextmanager
def as_the_user_has_it() -> Iterator[None]:
    """Read the configuration while no other cluster's settings are in force."""
    with in_force({}):
        yield


def snapshot() -> dict[str, Any]:
    """The configuration of this moment, sharing nothing with it.

    Other threads may set keys meanwhile, as every new client does: a plain deep copy then fails.
    """
    return _copied(dask.config.config)


def _copied(section: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _copied(value) if isinstance(value, Mapping) else copy.deepcopy(value)
        for key, value in list(section.items())  # a list is made in one go
    }


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What is new or has another value in a configuration, as sections in sections.

    Examples
    --------
    >>> changes({"array": {"slicing": 1, "rechunk": 2}}, {"array": {"slicing": 1, "rechunk": 3}})
    {'array': {'rechunk': 3}}
    """
    found: dict[str, Any] = {}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if inner := changes(old, value):
                found[key] = inner
        elif key not in before or not _equal(value, old):
            found[key] = value
    return found


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - arrays, and whatever else a program puts there
        return False


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


def variables_unless_chosen(ours: Mapping[str, str]) -> dict[str, str]:
    """Our variables for worker processes, less those that the user has set otherwise.

    By a variable of this process, or in either of the two settings that Dask has for it.
    """
    chosen = {}
    for section in ("distributed.nanny.pre-spawn-environ", "distributed.nanny.environ"):
        chosen.update(dask.config.get(section))
    shipped = dask.config.get(
        "distributed.nanny.pre-spawn-environ", config=dask.config.merge(*dask.config.defaults)
    )
    found = {}
    for name, value in ours.items():
        default = str(shipped.get(name))
        # Dask's nannies write what it ships into the variables of this process.
        if os.environ.get(name, default) == default and str(chosen.get(name)) == default:
            found[name] = value
    return found


def lend(cluster: str, settings: Mapping[str, Any]) -> None:
    """Put what a cluster wants of clients in the configuration, until :func:`take_back`.

    Of several clusters the latest holds, as Dask's default client is the latest. What the user
    has set stays.
    """
    with _lock:
        _wanted[cluster] = dict(settings)
        _put(_wanted[cluster])


def take_back(cluster: str) -> None:
    """Undo :func:`lend`; what the user has set since stays."""
    with _lock:
        if _wanted.pop(cluster, None) is not None:
            _put(next(reversed(_wanted.values()), {}))


def _put(settings: Mapping[str, Any]) -> None:
    dask.config.set(_of_the_user())
    _lent.clear()
    _lent.update(unless_chosen(settings))
    dask.config.set(_lent)


def _of_the_user() -> dict[str, Any]:
    """What stood in the configuration where a cluster's settings stand now."""
    shipped = dask.config.merge(*dask.config.defaults)
    return {
        key: dask.config.get(key, default=None, config=shipped)
        for key, value in _lent.items()
        if dask.config.get(key, default=None) == value
    }
