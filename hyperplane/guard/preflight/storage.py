"""Checks of object stores and folders: credentials, and write access to the output."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from typing import Any

from hyperplane.core.errors import Fault, HyperplaneError, RequestError, StorageError
from hyperplane.core.units import format_bytes
from hyperplane.guard.preflight.paths import (
    find_broken_link,
    find_existing_folder,
    new_probe_name,
    probe_folder,
)
from hyperplane.guard.preflight.report import PreflightFinding
from hyperplane.objectstore.listing import find_files
from hyperplane.objectstore.redaction import redact_url
from hyperplane.objectstore.save_target import Target, location_faults, resolve_target
from hyperplane.objectstore.store_files import StoreFiles
from hyperplane.platforms.local import machine

_FOLDER_ADVICE = "choose a folder that you can write to"
_SPACE_ADVICE = "free some space, or save to another disk"
#: Free bytes below which a disk counts as nearly full.
_LEAST_SPACE = 100_000_000


def check_output(
    output: str | os.PathLike[str],
    options: Mapping[str, Any] | None = None,
    data_bytes: int | None = None,
) -> Iterator[PreflightFinding]:
    """Yield findings about write access: create a new object beside the output, and remove it.

    ``data_bytes`` is the size of the data, if it is known; a disk should have space for it.
    """
    try:
        target = resolve_target(output, options)
    except (RequestError, StorageError) as error:
        yield from _faults_of("output", error)
        return
    faults = location_faults(target)
    if faults:
        yield from (_as_finding("output", fault) for fault in faults)
        return
    if target.store.local:
        link = find_broken_link(target.path)
        refused = OSError(f"{link} is a link that leads to nothing") if link else None
        refused = refused or probe_folder(target.parent)
        if refused is None:
            yield _check_space(target, data_bytes)
        else:
            text = f"{target.url} cannot be written: {refused.strerror or refused}"
            is_full = refused.errno in (errno.ENOSPC, errno.EDQUOT)
            advice = _SPACE_ADVICE if is_full else _FOLDER_ADVICE
            yield PreflightFinding("output", "fault", text, advice)
    else:
        yield from _probe_store(target)


def _check_space(target: Target, data_bytes: int | None) -> PreflightFinding:
    free = machine.free_disk(find_existing_folder(target.parent))
    text = f"{target.url} can be written, but its disk has {format_bytes(free)} free"
    if free < _LEAST_SPACE:
        return PreflightFinding("output", "warning", f"{text} only", _SPACE_ADVICE)
    if data_bytes is not None and free < data_bytes:
        text += f", less than the {format_bytes(data_bytes)} of the data"
        return PreflightFinding("output", "warning", text, _SPACE_ADVICE)
    return PreflightFinding("output", "ok", f"{target.url} can be written from this machine")


def _probe_store(target: Target) -> Iterator[PreflightFinding]:
    files = StoreFiles(target.store)
    probe = f"{target.parent}/{new_probe_name()}"
    try:
        files.put_new(probe, b"hyperplane preflight: may be removed\n")
    except (HyperplaneError, OSError) as error:
        yield _access_fault("output", "cannot be written", target.url, error)
        return
    try:
        files.remove([probe])
    except (HyperplaneError, OSError) as error:
        text = f"{target.url} can be written, but the probe {probe} cannot be removed: {error}"
        yield PreflightFinding("output", "warning", text, "remove it, and permit deletion")
        return
    yield PreflightFinding("output", "ok", f"{target.url} can be written from this machine")


def check_input(urls: Any, options: Mapping[str, Any] | None = None) -> Iterator[PreflightFinding]:
    """Yield findings about input files: whether they can be listed."""
    shown = ", ".join(map(_show, [urls] if isinstance(urls, str | os.PathLike) else urls))
    try:
        files = find_files(urls, options)
    except RequestError as error:
        yield from _faults_of("data", error)
    except (HyperplaneError, OSError) as error:
        yield _access_fault("data", "cannot be listed", shown, error)
    else:
        count = f"{len(files)} file" + ("" if len(files) == 1 else "s")
        yield PreflightFinding("data", "ok", f"{shown}: {count} for this machine")


def _show(url: Any) -> str:
    return redact_url(os.fspath(url))


def _access_fault(subject: str, problem: str, url: str, error: Exception) -> PreflightFinding:
    text = str(error)
    reason = text if url in text else f"{url}: {text}"
    return PreflightFinding(subject, "fault", f"{problem}: {reason}")


def _faults_of(subject: str, error: HyperplaneError) -> Iterator[PreflightFinding]:
    faults = getattr(error, "faults", ())
    if not faults:
        yield PreflightFinding(subject, "fault", str(error))
    yield from (_as_finding(subject, fault) for fault in faults)


def _as_finding(subject: str, fault: Fault) -> PreflightFinding:
    return PreflightFinding(subject, "fault", str(fault))
