"""Checks of ``hyperplane doctor``."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from typing import Literal

import psutil
from packaging.requirements import Requirement

import hyperplane
from hyperplane import config
from hyperplane.clusters import records, registry
from hyperplane.clusters.engine import Engine
from hyperplane.clusters.record_folders import record_folders
from hyperplane.core.errors import ConfigError, HyperplaneError
from hyperplane.core.folder_entries import find_in
from hyperplane.core.units import format_bytes, gb_to_bytes, plural
from hyperplane.guard.preflight.spill_disk import check_local_spill_folder
from hyperplane.platforms.local import machine
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import LocalSettings

#: ``off``: optional and not usable on this machine; ``wrong``: prevents clusters from starting.
State = Literal["ok", "off", "warning", "wrong"]

#: Packages whose versions are checked.
PACKAGES = ("dask", "distributed", "pandas", "pyarrow", "numpy", "pydantic")


@dataclass(frozen=True)
class CheckResult:
    """Result of one check; ``advice`` may be empty."""

    subject: str
    state: State
    text: str
    advice: str = ""


def check_versions() -> Iterator[CheckResult]:
    """Check Python and the main packages against the requirements of hyperplane."""
    yield CheckResult("python", "ok", platform.python_version())
    yield CheckResult("hyperplane", "ok", hyperplane.__version__)
    requirements = _read_requirements()
    for package in PACKAGES:
        yield _check_version(package, requirements.get(package))


def _read_requirements() -> dict[str, Requirement]:
    """Return the requirements without extras, by name; none if hyperplane is not installed."""
    with suppress(metadata.PackageNotFoundError):
        requirements = [Requirement(line) for line in metadata.requires("hyperplane") or ()]
        return {
            requirement.name: requirement
            for requirement in requirements
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        }
    return {}


def _check_version(package: str, requirement: Requirement | None) -> CheckResult:
    advice = f"pip install --upgrade '{requirement or package}'"
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        return CheckResult(package, "wrong", "not installed", advice)
    if requirement is None:  # required by dask[dataframe], which sets the version
        return CheckResult(package, "ok", version)
    text = f"{version} (hyperplane needs {requirement.specifier})"
    if requirement.specifier.contains(version, prereleases=True):
        return CheckResult(package, "ok", text)
    return CheckResult(package, "wrong", text, advice)


def check_machine() -> Iterator[CheckResult]:
    """Report the cores and the memory that this process may use."""
    cores, total_cores = machine.cores(), os.cpu_count() or 1
    yield CheckResult("cores", "ok", f"{cores} of {total_cores} may be used")
    total = psutil.virtual_memory().total
    yield CheckResult(
        "memory", "ok", f"{format_bytes(machine.free_ram())} of {format_bytes(total)} are free"
    )


def check_spill_folder() -> Iterator[CheckResult]:
    """Check the file system and the free space of the folder for spilled data."""
    finding = check_local_spill_folder(_disk_reserve())
    states: dict[str, State] = {"fault": "wrong", "warning": "warning"}
    state = states.get(finding.state, "ok")
    yield CheckResult("spill folder", state, finding.text, finding.advice)


def _disk_reserve() -> int:
    try:
        return gb_to_bytes(config.engine_settings("local", LocalSettings).reserve_disk_gb)
    except ConfigError:  # reported by check_configuration
        return 0


def check_engines() -> Iterator[CheckResult]:
    """Check whether each engine is usable here."""
    for name in registry.ENGINES.names():
        usable, reason = False, "its settings are invalid"
        try:
            engine = registry.load(name)
            usable, reason = engine.available()
            if usable and (missing := _find_missing_settings(engine)):
                usable, reason = False, missing
        except ConfigError:  # reported by check_configuration
            pass
        except Exception as error:  # noqa: BLE001 - an engine may be third-party code
            usable, reason = False, f"it cannot be loaded: {type(error).__name__}: {error}"
        yield CheckResult(f"engine {name}", "ok" if usable else "off", reason)


def _find_missing_settings(engine: Engine) -> str:
    """Return the missing settings that every plan for an engine needs."""
    settings = config.engine_settings(engine.name, engine.settings)
    faults = engine.faults(ClusterRequest(num_workers=1, nprocs=1), settings)
    missing = [fault for fault in faults if fault.where.startswith("hyperplane.engines.")]
    return "; ".join(map(str, missing))


def check_configuration() -> Iterator[CheckResult]:
    """Report the errors of the configuration, or the memory policy and the default cluster."""
    faults = config.faults(registry.ENGINES)
    for fault in faults:
        yield CheckResult("configuration", "wrong", str(fault))
    if faults:
        return
    yield CheckResult("configuration", "ok", "no faults")
    yield CheckResult("memory policy", "ok", str(config.memory_policy()))
    try:
        plan = hyperplane.plan_cluster()
    except HyperplaneError as error:
        yield CheckResult("default cluster", "wrong", str(error))
    else:
        layout = f"{plural(plan.nodes, 'node')}, each {plan.worker}, engine {plan.engine}"
        yield CheckResult("default cluster", "ok", layout)


def check_clusters() -> Iterator[CheckResult]:
    """Report the running clusters; reading their list removes the files of dead ones."""
    try:
        before = []
        for folder in record_folders():
            before += find_in(folder, "*.json")
        running = records.read_all()
    except OSError as error:
        yield CheckResult("clusters", "wrong", f"the list of clusters cannot be read: {error}")
        return
    names = ", ".join(record.name for record in running)
    yield CheckResult("clusters", "ok", f"running: {names}" if running else "no cluster is running")
    dead = sum(not file.exists() for file in before)
    if dead:
        text = f"removed the record and the folder of {plural(dead, 'cluster')} that died"
        yield CheckResult("leftovers", "ok", text)
