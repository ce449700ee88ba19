"""The freeze policy of the configuration: ``hyperplane.memory``, or Dask's own keys for the same.

Each threshold has two keys. One that a user has set wins over one that is shipped, and of two that
a user has set the one of ``hyperplane.memory`` wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import dask.config

from hyperplane import defaults
from hyperplane.config_sources import MISSING, get_nested, source_of
from hyperplane.errors import ConfigError, Fault
from hyperplane.spec.memory import MemoryPolicy, policy_faults

HYPERPLANE_SECTION, DASK_SECTION = "hyperplane.memory", "distributed.worker.memory"


class _Threshold(NamedTuple):
    """A threshold, the key that it is from, and the key of Dask that another one overrides."""

    value: Any
    key: str
    overridden: str = ""


def memory_policy() -> MemoryPolicy:
    """The freeze policy that holds when a call names none.

    Raises
    ------
    ConfigError
        With each threshold that cannot be used, its key and the file or variable that it is from.
    """
    found = _thresholds()
    keys = {f"{HYPERPLANE_SECTION}.{name}": threshold.key for name, threshold in found.items()}
    faults = policy_faults(
        {name: each.value for name, each in found.items()}, f"{HYPERPLANE_SECTION}."
    )
    if faults:
        raise ConfigError([_with_key_names(fault, keys) for fault in faults])
    return MemoryPolicy(**{name: each.value for name, each in found.items()})


def note_dask_thresholds() -> str:
    """The thresholds that are from Dask's own keys, as a note; empty when none is."""
    found = [each for each in _thresholds().values() if each.key.startswith(DASK_SECTION)]
    if not found:
        return ""
    keys = ", ".join(f"{each.key} = {each.value}" for each in found)
    return f"memory policy as Dask's configuration says: {keys}"


def note_overridden_thresholds(by_argument: MemoryPolicy | None) -> str:
    """The thresholds that a user has set in Dask's own keys and that do not hold, as a note."""
    words = []
    for name, each in _thresholds().items():
        if by_argument is not None:
            value, winner = getattr(by_argument, name), "the argument memory"
            key = each.overridden or each.key
        else:
            value, winner, key = each.value, each.key, each.overridden
        if not key.startswith(DASK_SECTION):
            continue
        lost = dask.config.get(key)
        if lost != value:
            words.append(f"{key} = {lost} is not used: {winner} says {value}")
    return "; ".join(words)


def _thresholds() -> dict[str, _Threshold]:
    section = dask.config.get(HYPERPLANE_SECTION)
    if not isinstance(section, Mapping):
        source = source_of(HYPERPLANE_SECTION)
        raise ConfigError(
            [Fault(HYPERPLANE_SECTION, repr(section), "a mapping of thresholds", source=source)]
        )
    return {str(name): _threshold(str(name), value) for name, value in section.items()}


def _threshold(name: str, value: object) -> _Threshold:
    ours, theirs = f"{HYPERPLANE_SECTION}.{name}", f"{DASK_SECTION}.{name}"
    of_dask = dask.config.get(theirs, default=MISSING)
    if name not in MemoryPolicy.__dataclass_fields__ or of_dask is MISSING:
        return _Threshold(value, ours)
    if of_dask == _shipped_by_dask(theirs):
        return _Threshold(value, ours)
    if source_of(ours).startswith(str(defaults.folder())):
        return _Threshold(of_dask, theirs)
    return _Threshold(value, ours, overridden=theirs)


def _shipped_by_dask(key: str) -> object:
    """What distributed ships for a key; nothing before it is imported, which adds its defaults."""
    for shipped in reversed(dask.config.defaults):
        value = get_nested(shipped, key.split("."))
        if value is not MISSING:
            return value
    return MISSING


def _with_key_names(fault: Fault, keys: Mapping[str, str]) -> Fault:
    """A fault with the keys that the values are really from."""
    where = keys.get(fault.where, fault.where)
    allowed = fault.allowed
    for ours, key in keys.items():
        allowed = allowed.replace(ours, key)
    return replace(fault, where=where, allowed=allowed, source=source_of(where))
