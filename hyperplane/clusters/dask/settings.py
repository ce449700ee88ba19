"""Dask settings of one cluster, applied without changing the settings of other clusters.

Dask reads some settings from its process-wide configuration while it builds a scheduler, a nanny or
a worker. A cluster's values for these are in force only during that read, under one lock, so two
clusters of one process can have different values.

Settings that a client reads while it turns a collection into a graph are different, because that
happens in the user's own calls. They stay in the configuration for as long as the cluster runs, as
Dask's own ``scheduler`` setting does for a client.
"""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dask.config

from hyperplane.core.tracebacks import keeps_all_frames

_lock = threading.RLock()
#: Client settings of each cluster, oldest first, by the cluster's name, or by the key of a handle
#: that is attached to it.
_requested: dict[str, dict[str, Any]] = {}
#: Those of the newest cluster that are in the configuration now.
_applied: dict[str, Any] = {}


#: File with the frame that waits in a call of Dask, for a setting with regular expressions.
_OUR_FRAME = r"hyperplane[\\\/]clusters[\\\/]dask[\\\/]compute_display\.py"


@contextmanager
def in_force(settings: Mapping[str, Any]) -> Iterator[None]:
    """Put dotted settings in force during a block of code, which must not await or wait."""
    with _lock, dask.config.set({**_user_values(), **settings}):
        yield


@contextmanager
def user_settings() -> Iterator[None]:
    """Put the user's own settings in force during a block, without those of any cluster."""
    with in_force({}):
        yield


def snapshot() -> dict[str, Any]:
    """Return a deep copy of Dask's current configuration.

    ``copy.deepcopy`` fails when another thread sets a key meanwhile, as every new client does.
    """
    return _deep_copy(dask.config.config)


def _deep_copy(section: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _deep_copy(value) if isinstance(value, Mapping) else copy.deepcopy(value)
        for key, value in list(section.items())  # list() is atomic under the GIL
    }


def changed_settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that were added or changed, as nested sections.

    Examples
    --------
    >>> before = {"array": {"slicing": 1, "rechunk": 2}}
    >>> changed_settings(before, {"array": {"slicing": 1, "rechunk": 3}})
    {'array': {'rechunk': 3}}
    """
    changed: dict[str, Any] = {}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if inner := changed_settings(old, value):
                changed[key] = inner
        elif key not in before or not _equal(value, old):
            changed[key] = value
    return changed


def _equal(value: Any, old: Any) -> bool:
    try:
        return bool(value == old)
    except Exception:  # noqa: BLE001 - arrays, for example, have no single truth value
        return False


def drop_overridden(ours: Mapping[str, Any]) -> dict[str, Any]:
    """Return our defaults for dotted Dask settings without those that the user has set.

    A setting counts as set by the user when its value differs from Dask's shipped default.
    """
    shipped = dask.config.merge(*dask.config.defaults)
    return {
        key: value
        for key, value in ours.items()
        if dask.config.get(key, default=None) == dask.config.get(key, default=None, config=shipped)
    }


def drop_overridden_variables(ours: Mapping[str, str]) -> dict[str, str]:
    """Return our worker environment variables without those that the user has set.

    The user sets one as a variable of this process or in one of Dask's two settings for it.
    """
    configured = {}
    for section in ("distributed.nanny.pre-spawn-environ", "distributed.nanny.environ"):
        configured.update(dask.config.get(section))
    shipped = dask.config.get(
        "distributed.nanny.pre-spawn-environ", config=dask.config.merge(*dask.config.defaults)
    )
    remaining = {}
    for name, value in ours.items():
        default = str(shipped.get(name))
        # Dask's nannies write its shipped defaults into the environment of this process.
        if os.environ.get(name, default) == default and str(configured.get(name)) == default:
            remaining[name] = value
    return remaining


def apply_client_settings(cluster: str, settings: Mapping[str, Any]) -> None:
    """Set a cluster's client settings in Dask's configuration until they are restored.

    The settings of the newest cluster are in force, as Dask's default client is the newest one.
    Values that the user has set are left alone.
    """
    with _lock:
        _requested[cluster] = {**_traceback_settings(), **settings}
        _apply(_requested[cluster])


def _traceback_settings() -> dict[str, Any]:
    """Return the setting with which Dask removes our frame from the tracebacks of its calls."""
    if keeps_all_frames():
        return {}
    key, shipped = "admin.traceback.shorten", dask.config.merge(*dask.config.defaults)
    return {key: [*dask.config.get(key, config=shipped), _OUR_FRAME]}


def restore_client_settings(cluster: str) -> None:
    """Undo :func:`apply_client_settings`, but keep values that the user has set since."""
    with _lock:
        if _requested.pop(cluster, None) is not None:
            _apply(next(reversed(_requested.values()), {}))


def _apply(settings: Mapping[str, Any]) -> None:
    dask.config.set(_user_values())
    _applied.clear()
    _applied.update(drop_overridden(settings))
    dask.config.set(_applied)


def _user_values() -> dict[str, Any]:
    """Return the values that the applied client settings of a cluster have replaced."""
    shipped = dask.config.merge(*dask.config.defaults)
    return {
        key: dask.config.get(key, default=None, config=shipped)
        for key, value in _applied.items()
        if dask.config.get(key, default=None) == value
    }
