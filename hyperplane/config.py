"""Typed views of the configuration that is in force.

Every view is read afresh, so a change holds from the next call on. What cannot be used is
reported all at once: each fault with the file or variable it came from, its key path, its value
and what is allowed.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from typing import Any, TypeVar

import dask.config
from pydantic import BaseModel, ValidationError

from hyperplane import defaults
from hyperplane.errors import ConfigError, Fault, UnknownPool
from hyperplane.sizing.rules import SizingRules
from hyperplane.spec.faults import faults_of
from hyperplane.spec.memory import MemoryPolicy, policy_faults
from hyperplane.spec.pool import PoolSpec, canonical_pool_name
from hyperplane.spec.settings import EngineSettings, LocalSettings

__all__ = [
    "auto_engines",
    "engine_settings",
    "faults",
    "get_pool",
    "memory_policy",
    "pools",
    "sizing_rules",
]

Model = TypeVar("Model", bound=BaseModel)
Settings = TypeVar("Settings", bound=EngineSettings)

_POOLS = "hyperplane.pools"
_QUOTE_IT = "write it as pool_<cores>_<GB>: YAML reads a bare 16_16 as the number 1616"


def pools() -> dict[str, PoolSpec]:
    """All pools by bare name, smallest first.

    Raises
    ------
    ConfigError
        With every fault of every pool.
    """
    section = dask.config.get(_POOLS)
    if not isinstance(section, Mapping) or not section:
        raise ConfigError([_fault(_POOLS, section, "a mapping of pools")])
    merged: dict[str, dict[str, Any]] = {}
    keys: dict[str, str] = {}
    found: list[Fault] = []
    for key, entry in section.items():
        path = f"{_POOLS}.{key}"
        if not isinstance(key, str):
            found.append(_fault(path, key, "text", _QUOTE_IT))
        elif not isinstance(entry, Mapping):
            found.append(_fault(path, entry, "a mapping of the keys of a pool"))
        else:
            name = canonical_pool_name(key)
            keys.setdefault(name, key)
            merged.setdefault(name, {}).update(entry)
    specs = {}
    for name, entry in merged.items():
        try:
            specs[name] = PoolSpec(name=name, **entry)
        except ValidationError as error:
            found += _with_sources(faults_of(error, f"{_POOLS}.{keys[name]}"))
        except TypeError:
            found.append(_fault(f"{_POOLS}.{keys[name]}.name", entry.get("name"), "no such key"))
    if found:
        raise ConfigError(found)
    return dict(sorted(specs.items(), key=lambda item: (item[1].cores, item[1].ram_gb)))


def get_pool(name: str | PoolSpec) -> PoolSpec:
    """The pool of that name or alias.

    Parameters
    ----------
    name : str or PoolSpec
        ``"16_16"``, ``"POOL_16_16"``, ``"DASK_POOL_16_16"`` or ``"hyperplane-med"``, in any case.
        A PoolSpec is given back as it is.

    Returns
    -------
    PoolSpec

    Raises
    ------
    UnknownPool
        With the nearest names that there are.
    """
    if isinstance(name, PoolSpec):
        return name
    known = pools()
    wanted = canonical_pool_name(str(name))
    by_alias = {pool.alias.lower(): pool for pool in known.values() if pool.alias}
    found = known.get(wanted) or by_alias.get(wanted)
    if found is None:
        names = [*known, *by_alias]
        raise UnknownPool(
            str(name), names, difflib.get_close_matches(wanted, names, n=3, cutoff=0.4)
        )
    return found


def sizing_rules() -> SizingRules:
    """The rules of the sizing calculator."""
    return _read("hyperplane.sizing", SizingRules)


def memory_policy() -> MemoryPolicy:
    """The freeze policy that holds when a call names none."""
    path = "hyperplane.memory"
    section = dask.config.get(path)
    if not isinstance(section, Mapping):
        raise ConfigError([_fault(path, section, "a mapping of thresholds")])
    found = policy_faults(section, path + ".")
    if found:
        raise ConfigError(_with_sources(found))
    return MemoryPolicy(**section)


def engine_settings(engine: str, model: type[Settings]) -> Settings:
    """The settings of an engine, checked against its model."""
    return _read(f"hyperplane.engines.{engine}", model)


def auto_engines() -> tuple[str, ...]:
    """The engines that ``engine="auto"`` may take, best first."""
    path = "hyperplane.engines.auto"
    names = dask.config.get(path)
    if (
        not isinstance(names, list | tuple)
        or not names
        or not all(isinstance(n, str) for n in names)
    ):
        raise ConfigError([_fault(path, names, "a list of names of engines")])
    return tuple(names)


def faults() -> list[Fault]:
    """Everything in the configuration that cannot be used; empty when all is well."""
    found: list[Fault] = []
    views = (pools, sizing_rules, memory_policy, auto_engines)
    for view in (*views, lambda: engine_settings("local", LocalSettings)):
        try:
            view()
        except ConfigError as error:
            found += error.faults
    return found


def _read(path: str, model: type[Model]) -> Model:
    section = dask.config.get(path, default={})
    if not isinstance(section, Mapping):
        raise ConfigError([_fault(path, section, "a mapping")])
    try:
        return model(**{str(key).replace("-", "_"): value for key, value in section.items()})
    except ValidationError as error:
        raise ConfigError(_with_sources(faults_of(error, path))) from error


def _fault(path: str, value: object, allowed: str, advice: str = "") -> Fault:
    return Fault(path, repr(value), allowed, advice, _source(path))


def _with_sources(found: list[Fault]) -> list[Fault]:
    return [
        Fault(fault.where, fault.asked, fault.allowed, fault.advice, _source(fault.where))
        for fault in found
    ]


def _source(path: str) -> str:
    """The variable or file that set a key, or the nearest of its parents that somebody set."""
    parts = path.split(".")
    variable = "DASK_" + "__".join(parts).upper()
    if variable in os.environ:
        return f"environment variable {variable}"
    files = list(dask.config.collect_yaml(dask.config.paths, return_paths=True))
    for file, content in reversed(files):
        if _holds(content, parts):
            return str(file)
    for name in defaults.FILES:
        if _holds(defaults.load_file(name), parts):
            shipped = _value(defaults.load_file(name), parts)
            if shipped == dask.config.get(path, default=None):
                return str(defaults.folder() / name)
    return "dask.config.set"


def _value(content: object, parts: list[str]) -> object:
    for part in parts:
        if not isinstance(content, Mapping):
            return None
        content = {str(key).replace("-", "_"): value for key, value in content.items()}.get(
            part.replace("-", "_")
        )
    return content


def _holds(content: object, parts: list[str]) -> bool:
    return _value(content, parts) is not None
