"""Checked settings of Dask's current configuration, section ``hyperplane``.

Each call reads the configuration again, so a change takes effect with the next call. All faults of
a section are reported together, each with its source, key, value and the allowed values.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from hyperplane.config_memory import memory_policy
from hyperplane.core import config_defaults
from hyperplane.core.config_sections import add_sources, get_mapping, make_fault, read_section
from hyperplane.core.config_sources import (
    SET_BY_VARIABLE,
    SET_FROM_PYTHON,
    get_nested,
    get_section,
    source_of,
    with_underscores,
)
from hyperplane.core.errors import ConfigError, Fault, RequestError, UnknownName, UnknownPool
from hyperplane.core.public_calls import check_call
from hyperplane.core.pydantic_faults import (
    with_known_names,
)
from hyperplane.core.registry import Registry
from hyperplane.sizing.rules import SizingRules
from hyperplane.spec.engine_names import platform_of
from hyperplane.spec.pool import PoolSpec, canonical_pool_name, listing_order
from hyperplane.spec.settings import (
    EmailSettings,
    EngineSettings,
    HistorySettings,
    JobSettings,
    ProgressSettings,
    RunnersSection,
)
from hyperplane.spec.tuning import TuningSection

__all__ = [
    "auto_engines",
    "check_sections",
    "email",
    "engine_settings",
    "faults",
    "get_pool",
    "history",
    "jobs",
    "memory_policy",
    "pools",
    "progress",
    "runners",
    "sizing_rules",
    "tuning",
]

Settings = TypeVar("Settings", bound=EngineSettings)

_ROOT = "hyperplane"
_POOLS = "hyperplane.pools"
_GPU_POOLS = "hyperplane.gpu_pools"
_ENGINES = f"{_ROOT}.engines"
#: Keys of a pool; its name is that of its section.
_POOL_KEYS = [name for name in PoolSpec.model_fields if name != "name"]
_GPU_POOL_KEYS = ("enabled", "pools")
_QUOTE_IT = "write it as pool_<cores>_<GB>: YAML reads a bare 16_16 as the number 1616"


@check_call
def pools() -> dict[str, PoolSpec]:
    """Return all pools by name, least memory first.

    If ``hyperplane.gpu_pools.enabled`` is true, the pools with GPUs follow.

    Raises
    ------
    ConfigError
        With every fault of every pool.
    """
    entries, faults = _read_pool_entries(_POOLS, "pools.yaml")
    if _are_gpu_pools_enabled():
        gpu_entries, gpu_faults = _read_pool_entries(f"{_GPU_POOLS}.pools", "gpu_pools.yaml")
        entries, faults = {**gpu_entries, **entries}, [*gpu_faults, *faults]
    specs = {}
    for name, entry in entries.items():
        try:
            specs[name] = PoolSpec(name=name, **entry.values)
        except RequestError as error:
            for fault in map(_to_key_fault, error.faults):
                path = entry.paths.get(fault.where, f"{entry.path}.{fault.where}")
                faults += add_sources([replace(fault, where=path)])
    if faults:
        raise ConfigError(faults)
    return dict(sorted(specs.items(), key=lambda item: listing_order(item[1])))


def _to_key_fault(fault: Fault) -> Fault:
    """Convert an unknown argument of PoolSpec into the fault of an unknown key."""
    if isinstance(fault, UnknownName):
        return with_known_names(Fault(fault.where, fault.asked, "no such key"), _POOL_KEYS)
    return fault


class _PoolEntry(NamedTuple):
    """Merged configuration of one pool, whose name may occur in several spellings."""

    path: str
    values: dict[str, Any]
    paths: dict[str, str]


def _are_gpu_pools_enabled() -> bool:
    section = get_section(_GPU_POOLS)
    if not isinstance(section, Mapping):
        raise ConfigError([make_fault(_GPU_POOLS, section, "a mapping of enabled and pools")])
    faults = [
        with_known_names(
            make_fault(f"{_GPU_POOLS}.{key}", value, "no such key"), _GPU_POOL_KEYS, _GPU_POOLS
        )
        for key, value in section.items()
        if key not in _GPU_POOL_KEYS
    ]
    if faults:
        raise ConfigError(faults)
    path = f"{_GPU_POOLS}.enabled"
    enabled = section.get("enabled", False)
    if not isinstance(enabled, bool):
        raise ConfigError([make_fault(path, enabled, "true or false")])
    return enabled


def _read_pool_entries(root: str, file: str) -> tuple[dict[str, _PoolEntry], list[Fault]]:
    """Return the entries of a section of pools by name, and the faults of invalid ones."""
    section = get_section(root)
    if not isinstance(section, Mapping) or not section:
        raise ConfigError([make_fault(root, section, "a mapping of pools")])
    entries: dict[str, _PoolEntry] = {}
    faults: list[Fault] = []
    for key, content in section.items():
        path = f"{root}.{key}"
        if not isinstance(key, str):
            faults.append(make_fault(path, key, "text", _QUOTE_IT))
            continue
        if not isinstance(content, Mapping):
            faults.append(make_fault(path, content, "a mapping of the keys of a pool"))
            continue
        entry = entries.setdefault(canonical_pool_name(key), _PoolEntry(path, {}, {}))
        shipped = get_nested(config_defaults.load_file(file), path.split("."))
        for field, value in with_underscores(content).items():
            if field == "name":
                fault = make_fault(f"{path}.{field}", value, "no such key")
                faults.append(with_known_names(fault, _POOL_KEYS, path))
            elif field not in entry.values or _takes_precedence(path, shipped, field, value, entry):
                entry.values[field] = value
                entry.paths[field] = f"{path}.{field}"
    return entries, faults


def _takes_precedence(
    path: str, shipped: Any, field: str, value: object, entry: _PoolEntry
) -> bool:
    """Return whether a value overrides that of the same pool under another spelling.

    Dask keeps ``POOL_16_16`` of a site, ``pool_16_16`` of this package and a lower-case key of an
    environment variable as separate keys, in an order that does not follow their precedence.
    """
    if isinstance(shipped, Mapping) and value == shipped.get(field):
        return False
    return _find_precedence(f"{path}.{field}") >= _find_precedence(entry.paths[field])


def _find_precedence(path: str) -> int:
    source = source_of(path)
    return 2 if source == SET_FROM_PYTHON else int(source.startswith(SET_BY_VARIABLE))


@check_call
def get_pool(name: str | PoolSpec) -> PoolSpec:
    """Find a pool by name or alias.

    Parameters
    ----------
    name : str or PoolSpec
        ``"16_16"``, ``"POOL_16_16"``, ``"DASK_POOL_16_16"`` or ``"hyperplane-med"``, in any case.
        A PoolSpec is returned unchanged.

    Returns
    -------
    PoolSpec

    Raises
    ------
    UnknownPool
        If there is no such pool, with the nearest names.
    """
    if isinstance(name, PoolSpec):
        return name
    known = pools()
    wanted = canonical_pool_name(str(name))
    by_alias = {canonical_pool_name(pool.alias): pool for pool in known.values() if pool.alias}
    match = known.get(wanted) or by_alias.get(wanted)
    if match is None:
        shown = {**{pool: pool for pool in known}, **{k: p.alias for k, p in by_alias.items()}}
        near = difflib.get_close_matches(wanted, shown, n=3, cutoff=0.4)
        raise UnknownPool(str(name), list(shown.values()), [shown[each] for each in near])
    return match


def sizing_rules() -> SizingRules:
    """Return the rules of the sizing calculator."""
    return read_section("hyperplane.sizing", SizingRules)


def tuning() -> TuningSection:
    """Return the profiles of Dask settings and the name of the default profile."""
    return read_section("hyperplane.tuning", TuningSection)


def engine_settings(engine: str, model: type[Settings]) -> Settings:
    """Return the settings of an engine, checked by its model."""
    path = f"{_ENGINES}.{engine_section(engine)}"
    if not model.inherited:
        return read_section(path, model, deep=False)
    platform = f"{_ENGINES}.{platform_of(engine)}"
    own, defaults = (with_underscores(get_mapping(each), deep=False) for each in (path, platform))
    inherited = {name: defaults[name] for name in model.inherited & defaults.keys() - own.keys()}
    keys = {name: f"{path}.{name}" for name in sorted(model.inherited & own.keys())}
    try:
        return read_section(path, model, inherited, deep=False).with_keys(keys)
    except ConfigError as error:
        raise ConfigError(
            [_locate_inherited(fault, path, platform, inherited) for fault in error.faults]
        ) from None


def _locate_inherited(
    fault: Fault, path: str, platform: str, inherited: Mapping[str, Any]
) -> Fault:
    """Return the fault of an inherited value with the section that has it."""
    setting = fault.where.removeprefix(f"{path}.")
    if setting.partition(".")[0] not in inherited:
        return fault
    where = f"{platform}.{setting}"
    return replace(fault, where=where, source=source_of(where))


def engine_section(engine: str) -> str:
    """Return the name of an engine's section, without ``:``, which variable names cannot have.

    Examples
    --------
    >>> engine_section("slurm"), engine_section("ray:slurm")
    ('slurm', 'ray_slurm')
    """
    return engine.replace(":", "_")


def jobs() -> JobSettings:
    """Return the settings of pipeline jobs."""
    return read_section(f"{_ROOT}.jobs", JobSettings)


def email() -> EmailSettings:
    """Return the settings of the server that sends e-mail."""
    return read_section(f"{_ROOT}.email", EmailSettings)


def history() -> HistorySettings:
    """Return the settings of the records of runs."""
    return read_section(f"{_ROOT}.history", HistorySettings)


def progress() -> ProgressSettings:
    """Return the settings of the progress of calls that wait."""
    return read_section(f"{_ROOT}.progress", ProgressSettings)


def runners() -> RunnersSection:
    """Return the settings of the runners that have no engine of clusters."""
    return read_section(f"{_ROOT}.runners", RunnersSection)


def auto_engines(engines: Registry[Any] | None = None) -> tuple[str, ...]:
    """Return the names of the engines that ``engine="auto"`` tries, in order.

    Raises
    ------
    ConfigError
        If it is not a list of names, or if a name is not among ``engines``.
    """
    section = get_section(_ENGINES)
    if not isinstance(section, Mapping):
        raise ConfigError([make_fault(_ENGINES, section, "a mapping of the sections of engines")])
    path = f"{_ENGINES}.auto"
    names = section.get("auto")
    is_list = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    if not is_list or not names:
        raise ConfigError([make_fault(path, names, "a list of engine names")])
    # Names of built-in engines need no search for entry points, which takes longer.
    if engines is not None and not (
        engines.built_in.keys() >= set(names) or set(engines.names()) >= set(names)
    ):
        allowed = "a list of engine names: " + ", ".join(engines.names())
        raise ConfigError([make_fault(path, names, allowed)])
    return tuple(names)


def faults(engines: Registry[Any]) -> list[Fault]:
    """Return the faults of all invalid values of the configuration.

    Parameters
    ----------
    engines : Registry
        The engines, whose classes have the models of their sections. Those that cannot be imported
        are omitted; ``hyperplane doctor`` reports them separately.
    """
    all_faults = _find_unknown_sections(engines)
    models: dict[str, type[EngineSettings]] = {}
    for name in engines.names():
        with suppress(Exception):  # raised by the import of another package
            models[name] = engines.load(name).settings
    readers: list[Callable[[], object]] = [
        *(pools, sizing_rules, memory_policy, partial(auto_engines, engines)),
        *(jobs, email, tuning, history, progress, runners),
        *(partial(engine_settings, name, model) for name, model in models.items()),
    ]
    for read in readers:
        try:
            read()
        except ConfigError as error:
            all_faults += error.faults
    return list(dict.fromkeys(all_faults))  # inherited values are in several sections


def check_sections(engines: Registry[Any]) -> None:
    """Raise ConfigError if there are unknown sections, without an import of the engines."""
    if unknown := _find_unknown_sections(engines):
        raise ConfigError(unknown)


def _find_unknown_sections(engines: Registry[Any]) -> list[Fault]:
    known = {
        section
        for name in config_defaults.FILES
        for section in config_defaults.load_file(name)[_ROOT]
    }
    section = get_section(_ROOT)
    return [
        make_fault(
            f"{_ROOT}.{key}", section[key], "one of the sections " + ", ".join(sorted(known))
        )
        for key in section
        if key not in known
    ] + _find_unknown_engines(engines)


def _find_unknown_engines(engines: Registry[Any]) -> list[Fault]:
    """Return the faults of sections whose engine does not exist."""
    section = get_section(_ENGINES)
    if not isinstance(section, Mapping):
        return []
    built_in = set(map(engine_section, engines.built_in))
    if all(key == "auto" or key in built_in for key in section):
        return []  # without a search for entry points, which takes longer
    sections = map(engine_section, ["auto", *engines.names()])
    known = {name.replace("-", "_"): name for name in sections}
    return [
        with_known_names(
            make_fault(f"{_ENGINES}.{key}", section[key], "no such engine"),
            known.values(),
            _ENGINES,
        )
        for key in section
        if str(key).replace("-", "_") not in known
    ]
