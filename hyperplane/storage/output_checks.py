"""Checks before a start of an output: its format, and what is saved there already."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from hyperplane.core.errors import OutputExists, RequestError, StorageError
from hyperplane.guard.preflight.report import PreflightFinding
from hyperplane.objectstore.save_target import Target, location_faults, resolve_target
from hyperplane.storage.commit_protocol import commit_protocol_for
from hyperplane.storage.object_kinds import DEFAULT_FORMATS, detect_kind, find_format
from hyperplane.storage.replaced_files import check_replaceable
from hyperplane.storage.request import (
    find_compression_faults,
    find_format_faults,
    target_suffix,
)


def check_saved_output(
    output: str | os.PathLike[str], data: Any = None, options: Mapping[str, Any] | None = None
) -> Iterator[PreflightFinding]:
    """Yield findings on what ``save`` refuses by itself; nothing is written.

    Parameters
    ----------
    output : str or path
        Path or URL that the job writes.
    data : object, optional
        Dask collection that is computed; if it is anything else, the output may be of any kind.
    options : mapping, optional
        Options of the file system.
    """
    try:
        target = resolve_target(output, options)
        if location_faults(target):
            return
    except (RequestError, StorageError):  # reported by the check of write access
        return
    yield from _check_format(target, data)
    yield from _check_existing(target)


def _check_format(target: Target, data: Any) -> Iterator[PreflightFinding]:
    """Yield a warning: the job may pass a format, or save text, which has any suffix."""
    suffix = target_suffix(target)
    if not suffix:
        return
    found = find_format(suffix)
    kind = detect_kind(data) if hasattr(data, "__dask_graph__") else ""
    if kind in DEFAULT_FORMATS:
        format_name = found or DEFAULT_FORMATS[kind]
        faults = find_format_faults(kind, format_name, target, f"a Dask {kind}")
    elif kind or found:
        return
    else:
        faults = find_compression_faults(target) or find_format_faults(
            "table", found, target, "a table"
        )
    for fault in faults:
        yield PreflightFinding("output", "warning", f"save refuses it: {fault}")


def _check_existing(target: Target) -> Iterator[PreflightFinding]:
    # The state of an output that does not exist would restore an interrupted save.
    if target.store.local and not os.path.lexists(target.path):
        return
    try:
        manifest = commit_protocol_for(target).read_state().manifest
        check_replaceable(target.url, manifest)
    except OutputExists as error:
        yield PreflightFinding("output", "fault", str(error))
        return
    except (StorageError, OSError):  # of the store: reported by the check of write access
        return
    if manifest is not None:
        text = f"something is already saved at {target.url}, and save refuses other content"
        advice = "pass mode='overwrite' to replace it, mode='append' or mode='skip'"
        yield PreflightFinding("output", "warning", text, advice)
