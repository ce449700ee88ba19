"""Paths of this machine among the data and the output, and probes of folders."""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

#: Beginning of the name of the object that is created and removed.
PROBE_PREFIX = ".hyperplane-preflight-"
_GLOB = re.compile(r"[*?\[]")


def new_probe_name() -> str:
    """Return a new name for a file that is created and removed."""
    return f"{PROBE_PREFIX}{secrets.token_hex(8)}"


def probe_folder(folder: str) -> OSError | None:
    """Return the error of creating and removing a file in a folder, or in its nearest parent."""
    probe = Path(find_existing_folder(folder), new_probe_name())
    try:
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        return error
    return None


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


def _expand_user(path: str) -> str:
    # Not Path.expanduser, which raises for a user that does not exist.
    return os.path.expanduser(path)  # noqa: PTH111
