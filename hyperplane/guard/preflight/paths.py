"""Paths of this machine among the data and the output, and probes of folders."""

from __future__ import annotations

import errno
import math
import os
import re
import secrets
from contextlib import suppress
from numbers import Real
from pathlib import Path
from typing import Any

#: Beginning of the name of the object that is created and removed.
PROBE_PREFIX = ".hyperplane-preflight-"
#: Content of a file that is created and removed.
_PROBE = b"hyperplane preflight: may be removed\n" * 100
_GLOB = re.compile(r"[*?\[]")


def new_probe_name() -> str:
    """Return a new name for a file that is created and removed."""
    return f"{PROBE_PREFIX}{secrets.token_hex(8)}"


def probe_folder(folder: str) -> OSError | None:
    """Return the error of writing and removing a file in a folder, or in its nearest parent."""
    if link := find_broken_link(folder):
        return OSError(errno.ENOENT, f"{link} is a link that leads to nothing")
    probe = Path(find_existing_folder(folder), new_probe_name())
    try:
        try:
            with probe.open("xb") as file:
                file.write(_PROBE)  # an empty file fits on a full disk
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        return error
    return None


def find_broken_link(path: str) -> str:
    """Return the link among a path and its parents that leads to nothing, or to itself; or ""."""
    place = Path(path).absolute()
    for each in (place, *place.parents):
        if os.path.exists(each):  # noqa: PTH110 - Path.exists raises without permission
            break
        if os.path.islink(each):  # noqa: PTH114
            return str(each)
    return ""


def find_existing_folder(path: str) -> str:
    """Return the nearest parent of a path that exists, usually a folder.

    A path that this user may not look at counts as absent: the check of its parent tells so.
    """
    folder = Path(path).absolute()
    while not os.path.exists(folder):  # noqa: PTH110 - Path.exists raises without permission
        folder = folder.parent
    return str(folder)


def find_output_folder(output: Any) -> str | None:
    """Return the folder of this machine that an output is in; None for an object store."""
    text = os.fspath(output)
    if "://" in text and not text.startswith("file://"):
        return None
    return find_existing_folder(str(Path(_expand_user(text.removeprefix("file://"))).parent))


def is_paths(data: Any) -> bool:
    """Return whether data are a path or URL, or a list of these."""
    listed = data if isinstance(data, list | tuple) else [data]
    return bool(listed) and all(isinstance(item, str | os.PathLike) for item in listed)


def find_local_paths(urls: Any) -> list[str]:
    """Return the paths of the local disk among paths and URLs, without those that are globs.

    Only a path without ``*``, ``?`` and ``[`` certainly names one file or folder.
    """
    listed = [urls] if isinstance(urls, str | os.PathLike) else urls
    paths = []
    with suppress(TypeError):
        for url in listed:
            text = os.fspath(url)
            if isinstance(text, str) and "://" not in text and not _GLOB.search(text):
                paths.append(str(Path(_expand_user(text)).absolute()))
    return paths


def find_data_bytes(data: Any) -> int | None:
    """Return the bytes of an array, of a data set, or of local files; None if they are unknown."""
    if is_paths(data):
        files = [Path(path) for path in find_local_paths(data)]
        listed = data if isinstance(data, list | tuple) else [data]
        with suppress(OSError):
            if len(files) == len(listed) and all(file.is_file() for file in files):
                return sum(file.stat().st_size for file in files)
        return None
    size = None
    with suppress(Exception):  # a data frame of Dask has no size before it is computed
        size = data.nbytes
    return int(float(size)) if isinstance(size, Real) and not math.isnan(size) else None


def _expand_user(path: str) -> str:
    # Not Path.expanduser, which raises for a user that does not exist.
    return os.path.expanduser(path)  # noqa: PTH111
