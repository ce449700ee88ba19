"""What ``hyperplane doctor`` looks at: each check gives findings and changes nothing."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import dask.config
import psutil
from packaging.requirements import Requirement

import hyperplane
from hyperplane import config
from hyperplane.engines import machine, records, registry
from hyperplane.engines.base import Engine
from hyperplane.engines.private_folders import private_folder, record_folders, remove_empty
from hyperplane.errors import ConfigError, HyperplaneError
from hyperplane.folder_entries import find_in
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import LocalSettings
from hyperplane.units import format_bytes, gb_to_bytes, plural

#: ``off`` is what cannot be used here and need not be; ``wrong`` keeps a cluster from starting.
State = Literal["ok", "off", "warning", "wrong"]

PACKAGES = ("dask", "distributed", "pandas", "pyarrow", "numpy", "pydantic")
IN_MEMORY = {"tmpfs", "ramfs"}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Parameters
    ----------
    subject : str
        What it is.
    state : {"ok", "off", "warning", "wrong"}
        How it is.
    text : str
        What was found.
    advice : str
        What to do about it; may be empty.
    """

    subject: str
    state: State
    text: str
    advice: str = ""


def versions() -> Iterator[Finding]:
    """Python and the packages that matter, against what this package's metadata asks for."""
    yield Finding("python", "ok", platform.python_version())
    yield Finding("hyperplane", "ok", hyperplane.__version__)
    needs = _requirements()
    for package in PACKAGES:
        yield _version(package, needs.get(package))


def _requirements() -> dict[str, Requirement]:
    """What this package needs without any extra, by name; nothing when it is not installed."""
    with suppress(metadata.PackageNotFoundError):
        found = [Requirement(line) for line in metadata.requires("hyperplane") or ()]
        return {
            need.name: need
            for need in found
            if need.marker is None or need.marker.evaluate({"extra": ""})
        }
    return {}


def _version(package: str, need: Requirement | None) -> Finding:
    advice = f"pip install --upgrade '{need or package}'"
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        return Finding(package, "wrong", "not installed", advice)
    if need is None:  # dask[dataframe] brings it, in the version that it wants
        return Finding(package, "ok", version)
    text = f"{version} (hyperplane needs {need.specifier})"
    if need.specifier.contains(version, prereleases=True):
        return Finding(package, "ok", text)
    return Finding(package, "wrong", text, advice)


def this_machine() -> Iterator[Finding]:
    """Cores and memory that this process may use."""
    cores, of = machine.cores(), os.cpu_count() or 1
    yield Finding("cores", "ok", f"{cores} of {of} may be used")
    total = psutil.virtual_memory().total
    yield Finding(
        "memory", "ok", f"{format_bytes(machine.free_ram())} of {format_bytes(total)} are free"
    )


def spilling() -> Iterator[Finding]:
    """The folder that workers move data to."""
    parent = dask.config.get("temporary-directory", default=None) or tempfile.gettempdir()
    elsewhere = "set temporary-directory in the Dask configuration to a folder on a disk"
    try:
        folder = private_folder(parent)
        free = machine.free_disk(str(folder))
        kind = _file_system(folder)
        remove_empty(folder)
    except OSError as error:
        yield Finding("spill folder", "wrong", f"{parent}: {error}", elsewhere)
        return
    text = f"{folder}: {format_bytes(free)} free, {kind or 'file system unknown'}"
    if kind in IN_MEMORY:
        text += ", which is memory: what is spilled there takes the memory it should free"
        yield Finding("spill folder", "warning", text, elsewhere)
    elif free < _reserve():
        text += f", less than the reserve of {format_bytes(_reserve())}: workers cannot spill"
        yield Finding("spill folder", "warning", text, "make room there, or " + elsewhere)
    else:
        yield Finding("spill folder", "ok", text)


def _reserve() -> int:
    try:
        return gb_to_bytes(config.engine_settings("local", LocalSettings).reserve_disk_gb)
    except ConfigError:  # told with the configuration
        return 0


def _file_system(folder: Path) -> str:
    """The type of the file system that holds a folder; empty when nobody says."""
    place = folder.resolve()
    mounts = [
        (len(Path(mount.mountpoint).parts), mount.fstype)
        for mount in psutil.disk_partitions(all=True)
        if place.is_relative_to(mount.mountpoint)
    ]
    # Of several mounts on one place the last is the one that shows.
    return max(reversed(mounts), key=lambda mount: mount[0])[1] if mounts else ""


def engines() -> Iterator[Finding]:
    """Each engine, and whether it can be used here."""
    for name in registry.names():
        try:
            engine = registry.load(name)
            usable, reason = engine.available()
            if usable and (missing := _not_set(engine)):
                usable, reason = False, missing
        except ConfigError:  # told with the configuration
            pass
        except Exception as error:  # noqa: BLE001 - an engine may be anybody's code
            usable, reason = False, f"it cannot be loaded: {type(error).__name__}: {error}"
        yield Finding(f"engine {name}", "ok" if usable else "off", reason)


def _not_set(engine: Engine) -> str:
    """Settings without which no plan can be made for an engine."""
    settings = config.engine_settings(engine.name, engine.settings)
    found = engine.faults(ClusterRequest(num_workers=1, nprocs=1), settings)
    return "; ".join(str(fault) for fault in found if fault.where.startswith("hyperplane.engines."))


def configuration() -> Iterator[Finding]:
    """Every fault of the configuration, or the policy in force and what would be started."""
    faults = config.faults()
    for fault in faults:
        yield Finding("configuration", "wrong", str(fault))
    if faults:
        return
    yield Finding("configuration", "ok", "no faults")
    yield Finding("memory policy", "ok", str(config.memory_policy()))
    try:
        plan = hyperplane.plan_cluster()
    except HyperplaneError as error:
        yield Finding("default cluster", "wrong", str(error))
    else:
        given = f"{plural(plan.nodes, 'node')}, each {plan.worker}, engine {plan.engine}"
        yield Finding("default cluster", "ok", given)


def running() -> Iterator[Finding]:
    """The clusters that run, and what dead ones had left, which reading the list removes."""
    try:
        before = []
        for folder in record_folders():
            before += find_in(folder, "*.json")
        found = records.read_all()
    except OSError as error:
        yield Finding("clusters", "wrong", f"the list of clusters cannot be read: {error}")
        return
    names = ", ".join(record.name for record in found)
    yield Finding("clusters", "ok", f"running: {names}" if found else "none runs")
    dead = sum(not file.exists() for file in before)
    if dead:
        text = f"removed the record and the folder of {plural(dead, 'cluster')} that died"
        yield Finding("leftovers", "ok", text)
