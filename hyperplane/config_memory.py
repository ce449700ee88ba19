"""Configured memory thresholds: ``hyperplane.memory`` or ``distributed.worker.memory``.

Each threshold has one key in either section. A key that a user has set takes precedence over a
default, and ``hyperplane.memory`` over ``distributed.worker.memory`` if a user has set both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import dask.config

from hyperplane.core import config_defaults
from hyperplane.core.config_sources import MISSING, get_nested, get_section, source_of
from hyperplane.core.errors import ConfigError, Fault
from hyperplane.spec.memory import MemoryPolicy, find_policy_faults

HYPERPLANE_SECTION, DASK_SECTION = "hyperplane.memory", "distributed.worker.memory"


class _Threshold(NamedTuple):
    """A threshold, its key, and the key of Dask that it overrides, if any."""

    value: Any
    key: str
    overridden: str = ""


def memory_policy() -> MemoryPolicy:
    """Return the configured memory policy.

    Raises
    ------
    ConfigError
        With each invalid threshold, its key, and the file or variable that sets it.
    """
    thresholds = _read_thresholds()
    keys = {f"{HYPERPLANE_SECTION}.{name}": each.key for name, each in thresholds.items()}
    values = {name: each.value for name, each in thresholds.items()}
    faults = find_policy_faults(values, f"{HYPERPLANE_SECTION}.")
    if faults:
        raise ConfigError([_replace_keys(fault, keys) for fault in faults])
    return MemoryPolicy(**values)


def note_dask_thresholds() -> str:
    """Return a note on thresholds that come from Dask's keys; empty if there are none."""
    from_dask = [each for each in _read_thresholds().values() if each.key.startswith(DASK_SECTION)]
    if not from_dask:
        return ""
    keys = ", ".join(f"{each.key} = {each.value}" for each in from_dask)
    return f"memory policy from Dask's configuration: {keys}"


def note_overridden_thresholds(by_argument: MemoryPolicy | None) -> str:
    """Return a note on values of Dask's keys that another value overrides; empty if none is."""
    notes = []
    for name, each in _read_thresholds().items():
        if by_argument is not None:
            value, winner = getattr(by_argument, name), "the argument memory"
            key = each.overridden or each.key
        else:
            value, winner, key = each.value, each.key, each.overridden
        if not key.startswith(DASK_SECTION):
            continue
        unused = dask.config.get(key)
        if unused != value:
            notes.append(f"{key} = {unused} is not used: {winner} is {value}")
    return "; ".join(notes)


def _read_thresholds() -> dict[str, _Threshold]:
    section = get_section(HYPERPLANE_SECTION)
    if not isinstance(section, Mapping):
        source = source_of(HYPERPLANE_SECTION)
        raise ConfigError(
            [Fault(HYPERPLANE_SECTION, repr(section), "a mapping of thresholds", source=source)]
        )
    return {str(name): _read_threshold(str(name), value) for name, value in section.items()}


def _read_threshold(name: str, value: object) -> _Threshold:
    key, dask_key = f"{HYPERPLANE_SECTION}.{name}", f"{DASK_SECTION}.{name}"
    dask_value = dask.config.get(dask_key, default=MISSING)
    if name not in MemoryPolicy.__dataclass_fields__ or dask_value is MISSING:
        return _Threshold(value, key)
    if dask_value == _find_dask_default(dask_key):
        return _Threshold(value, key)
    if source_of(key).startswith(str(config_defaults.folder())):
        return _Threshold(dask_value, dask_key)
    return _Threshold(value, key, overridden=dask_key)


def _find_dask_default(key: str) -> object:
    """Return distributed's default for a key; MISSING if its defaults are not loaded."""
    for shipped in reversed(dask.config.defaults):
        value = get_nested(shipped, key.split("."))
        if value is not MISSING:
            return value
    return MISSING


def _replace_keys(fault: Fault, keys: Mapping[str, str]) -> Fault:
    """Return a fault with each key replaced by the one that sets the value."""
    where = keys.get(fault.where, fault.where)
    allowed = fault.allowed
    for former, key in keys.items():
        allowed = allowed.replace(former, key)
    return replace(fault, where=where, allowed=allowed, source=source_of(where))
