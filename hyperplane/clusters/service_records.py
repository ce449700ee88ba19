"""Records of the model servers that run on this machine, for ``get_service_url``."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import psutil

from hyperplane.clusters.record_folders import record_folder, record_folders
from hyperplane.platforms.local.process_identity import is_id_reused, start_time

#: Start of the names of the files; those of clusters begin with the name of a cluster.
_PREFIX, _SUFFIX = "service-", ".service"


@contextlib.contextmanager
def recording_service(name: str | None, url: str) -> Iterator[None]:
    """Record a service of this process; a later one with its name replaces it."""
    if name is None:
        yield
        return
    record = {"url": url, "pid": os.getpid(), "started": start_time(os.getpid())}
    try:
        path = record_folder() / f"{_PREFIX}{name}{_SUFFIX}"
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(record), encoding="utf-8")
        draft.replace(path)
    except OSError:  # a full or read-only disk is no reason not to serve
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if _read(path) == record:
                path.unlink()


def find_service(name: str) -> str | None:
    """Return the URL of a running service of this user on this machine; None if there is none."""
    for folder in record_folders():
        record = _read(folder / f"{_PREFIX}{name}{_SUFFIX}")
        if record is None:
            continue
        with contextlib.suppress(KeyError, TypeError, ValueError):
            pid = int(str(record["pid"]))
            if psutil.pid_exists(pid) and not is_id_reused(pid, str(record["started"])):
                return str(record["url"])
    return None


def _read(path: Path) -> dict[str, object] | None:
    with contextlib.suppress(OSError, ValueError):
        record = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(record, dict):
            return record
    return None
