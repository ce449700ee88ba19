"""Typed views of the configuration that is in force.

Every view is read afresh, so a change holds from the next call on. What cannot be used is
reported all at once: each fault with the file or variable it came from, its key path, its value
and what is allowed.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import dask.config
from pydantic import BaseModel, ValidationError

from hyperplane import defaults
from hyperplane.errors import ConfigError, Fault, UnknownPool
from hyperplane.sizing.rules import SizingRules
from hyperplane.spec.faults import faults_of
from hyperplane.spec.memory import MemoryPolicy, policy_faults
from hyperplane.spec.pool import PoolSpec, canonical_pool_name
from hyperplane.spec.settings import ENGINES, EngineSettings, JobSettings
from hyperplane.spec.tuning import TuningSection

__all__ = [
    "auto_engines",
    "check_sections",
    "engine_settings",
    "faults",
    "get_pool",
    "jobs",
    "memory_policy",
    "pools",
    "sizing_rules",
    "tuning",
]

Model = TypeVar("Model", bound=BaseModel)
Settings = TypeVar("Settings", bound=EngineSettings)

_ROOT = "hyperplane"
_POOLS = "hyperplane.pools"
_SET, _VARIABLE = "dask.config.set", "environment variable"
_MISSING: Any = object()
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
    entries, found = _pool_entries(section)
    specs = {}
    for name, entry in entries.items():
        try:
            specs[name] = PoolSpec(name=name, **entry.values)
        except ValidationError as error:
            for fault in faults_of(error):
                path = entry.paths.get(fault.where, f"{entry.path}.{fault.where}")
                found += _with_sources([replace(fault, where=path)])
    if found:
        raise ConfigError(found)
    return dict(sorted(specs.items(), key=lambda item: (item[1].cores, item[1].ram_gb)))


class _Entry(NamedTuple):
    """What the configuration says of one pool, under one spelling of its name or several."""

    path: str
    values: dict[str, Any]
    paths: dict[str, str]


def _pool_entries(section: Mapping[Any, Any]) -> tuple[dict[str, _Entry], list[Fault]]:
    """The entries of the pools by bare name, and what cannot be read as one."""
    entries: dict[str, _Entry] = {}
    found: list[Fault] = []
    for key, content in section.items():
        path = f"{_POOLS}.{key}"
        if not isinstance(key, str):
            found.append(_fault(path, key, "text", _QUOTE_IT))
            continue
        if not isinstance(content, Mapping):
            found.append(_fault(path, content, "a mapping of the keys of a pool"))
            continue
        entry = entries.setdefault(canonical_pool_name(key), _Entry(path, {}, {}))
        shipped = _value(defaults.load_file("pools.yaml"), path.split("."))
        for field, value in _underscored(content).items():
            if field == "name":
                found.append(_fault(f"{path}.{field}", value, "no such key"))
            elif field not in entry.values or _beats(path, shipped, field, value, entry):
                entry.values[field] = value
                entry.paths[field] = f"{path}.{field}"
    return entries, found


def _beats(path: str, shipped: Any, field: str, value: object, entry: _Entry) -> bool:
    """Whether a value beats that of the same pool under another spelling.

    Of a site's ``POOL_16_16``, the shipped ``pool_16_16`` and a variable, which Dask reads as
    lower case, the last given to Dask need not be the strongest.
    """
    if isinstance(shipped, Mapping) and value == shipped.get(field):
        return False
    return _strength(f"{path}.{field}") >= _strength(entry.paths[field])


def _strength(path: str) -> int:
    source = _source(path)
    return 2 if source == _SET else int(source.startswith(_VARIABLE))


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
    by_alias = {canonical_pool_name(pool.alias): pool for pool in known.values() if pool.alias}
    found = known.get(wanted) or by_alias.get(wanted)
    if found is None:
        shown = {**{pool: pool for pool in known}, **{k: p.alias for k, p in by_alias.items()}}
        near = difflib.get_close_matches(wanted, shown, n=3, cutoff=0.4)
        raise UnknownPool(str(name), list(shown.values()), [shown[each] for each in near])
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


def tuning() -> TuningSection:
    """The profiles of settings of Dask, and the one that holds when a call names none."""
    return _read("hyperplane.tuning", TuningSection)


def engine_settings(engine: str, model: type[Settings]) -> Settings:
    """The settings of an engine, checked against its model."""
    return _read(f"{_ROOT}.engines.{engine}", model)


def jobs() -> JobSettings:
    """The settings of pipeline jobs."""
    return _read(f"{_ROOT}.jobs", JobSettings)


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
    found = _unknown_sections()
    views: list[Callable[[], object]] = [
        *(pools, sizing_rules, memory_policy, auto_engines, jobs, tuning),
        *(partial(engine_settings, name, model) for name, model in ENGINES.items()),
    ]
    for view in views:
        try:
            view()
        except ConfigError as error:
            found += error.faults
    return found


def check_sections() -> None:
    """Raise :class:`~hyperplane.errors.ConfigError` for sections that mean nothing."""
    if found := _unknown_sections():
        raise ConfigError(found)


def _unknown_sections() -> list[Fault]:
    known = {section for name in defaults.FILES for section in defaults.load_file(name)[_ROOT]}
    section = dask.config.get(_ROOT)
    return [
        _fault(f"{_ROOT}.{key}", section[key], "one of the sections " + ", ".join(sorted(known)))
        for key in section
        if key not in known
    ]


def _read(path: str, model: type[Model]) -> Model:
    section = dask.config.get(path, default={})
    if not isinstance(section, Mapping):
        raise ConfigError([_fault(path, section, "a mapping")])
    try:
        # What lies deeper in an engine's section are names of somebody else's.
        return model(**_underscored(section, deep=not issubclass(model, EngineSettings)))
    except ValidationError as error:
        raise ConfigError(_with_sources(faults_of(error, path))) from error


def _fault(path: str, value: object, allowed: str, advice: str = "") -> Fault:
    return Fault(path, repr(value), allowed, advice, _source(path))


def _with_sources(found: list[Fault]) -> list[Fault]:
    return [replace(fault, source=_source(fault.where)) for fault in found]


def _source(path: str) -> str:
    """What set a key, or the nearest parent of a key that is missing."""
    parts = path.split(".")
    now = _value(dask.config.config, parts)
    while now is _MISSING and len(parts) > 1:
        parts = parts[:-1]
        now = _value(dask.config.config, parts)
    for source, content in _sources(parts):
        if _gave(_value(content, parts), now):
            return source
    return _SET


def _sources(parts: list[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Everything that is read into the configuration, the strongest first."""
    variable = "DASK_" + "__".join(parts).upper() + "__"
    set_ = [
        name
        for name in sorted(os.environ)
        if name.startswith("DASK_HYPERPLANE")
        and (variable.startswith(f"{name.upper()}__") or name.upper().startswith(variable))
    ]
    yield f"{_VARIABLE} {', '.join(set_)}", dask.config.collect_env()
    files = list(dask.config.collect_yaml(dask.config.paths, return_paths=True))
    yield from ((str(file), content) for file, content in reversed(files))
    for name in defaults.FILES:
        yield str(defaults.folder() / name), defaults.load_file(name)


def _gave(value: object, now: object) -> bool:
    """Whether a value, or something in it, is what is in force now."""
    if isinstance(value, Mapping) and isinstance(now, Mapping):
        return any(_gave(value[key], now.get(key, _MISSING)) for key in value)
    return value is not _MISSING and value == now


def _value(content: object, parts: list[str]) -> Any:
    for part in parts:
        if not isinstance(content, Mapping):
            return _MISSING
        content = {str(key).replace("-", "_"): value for key, value in content.items()}.get(
            part.replace("-", "_"), _MISSING
        )
    return content


def _underscored(section: Mapping[Any, Any], deep: bool = True) -> dict[str, Any]:
    """A section with ``_`` for ``-`` in its keys, which are one and the same to Dask."""
    found = {str(key).replace("-", "_"): value for key, value in section.items()}
    inner = {key: value for key, value in found.items() if deep and isinstance(value, Mapping)}
    return {**found, **{key: _underscored(value) for key, value in inner.items()}}
