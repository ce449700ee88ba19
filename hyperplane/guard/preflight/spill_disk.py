"""Checks of folders for spilled data: on this machine, and where workers run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import dask.config

from hyperplane.core.units import format_bytes
from hyperplane.guard.preflight.environment import PreflightEnvironment
from hyperplane.guard.preflight.paths import find_broken_link, find_existing_folder
from hyperplane.guard.preflight.report import PreflightFinding
from hyperplane.guard.preflight.versions import join_places
from hyperplane.platforms.local import machine
from hyperplane.platforms.local.file_systems import file_system_type

#: Types of file systems that store files in memory.
IN_MEMORY = {"tmpfs", "ramfs"}
#: Free bytes below which remote workers count as unable to spill.
REMOTE_RESERVE = 2_000_000_000
ADVICE = "set temporary-directory in the Dask configuration to a folder on a disk"
_SUBJECT = "spill folder"


def check_local_spill_folder(reserve: int) -> PreflightFinding:
    """Check the folder of this machine that contains spill folders; ``reserve`` is in bytes.

    The spill folders themselves are neither created nor removed: other processes that start and
    end at the same time create and remove them, too.
    """
    parent = configured_folder() or tempfile.gettempdir()
    if link := find_broken_link(parent):
        text = f"{parent}: {link} is a link that leads to nothing"
        return PreflightFinding(_SUBJECT, "fault", text, ADVICE)
    try:
        folder = find_existing_folder(parent)
        with tempfile.TemporaryFile(dir=folder):
            free = machine.free_disk(folder)
            kind = file_system_type(Path(folder))
    except OSError as error:
        return PreflightFinding(_SUBJECT, "fault", f"{parent}: {error}", ADVICE)
    return _judge(folder, free, kind, reserve)


def configured_folder() -> str | None:
    """Return the folder for spilled data in the Dask configuration."""
    folder: str | None = dask.config.get("temporary-directory", default=None)
    return folder


def check_spill_folders(
    workers: Mapping[str, PreflightEnvironment], reserve: int = REMOTE_RESERVE
) -> Iterator[PreflightFinding]:
    """Yield findings on the spill folders of places where workers run."""
    found: dict[PreflightFinding, list[str]] = {}
    for place, environment in workers.items():
        disk = environment.disk
        if not disk:
            continue
        if disk["writable"]:
            finding = _judge(disk["folder"], disk["free"], disk["type"], reserve)
        else:
            text = f"{disk['folder']}: cannot be written, so that workers cannot spill"
            finding = PreflightFinding(_SUBJECT, "fault", text, ADVICE)
        found.setdefault(finding, []).append(place)
    for finding, places in found.items():
        text = f"{finding.text} ({join_places(places)})"
        yield PreflightFinding(finding.subject, finding.state, text, finding.advice)


def _judge(folder: str, free: int, kind: str, reserve: int) -> PreflightFinding:
    text = f"{folder}: {format_bytes(free)} free, {kind or 'file system unknown'}"
    if kind in IN_MEMORY:
        text += ", which is in memory: spilling to it frees no memory"
        return PreflightFinding(_SUBJECT, "warning", text, ADVICE)
    if free < reserve:
        text += f", less than the reserve of {format_bytes(reserve)}: workers cannot spill"
        return PreflightFinding(_SUBJECT, "warning", text, "free some disk space, or " + ADVICE)
    return PreflightFinding(_SUBJECT, "ok", text)
