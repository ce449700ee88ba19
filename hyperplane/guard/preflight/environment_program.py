"""Program that prints, as a line of JSON, what the environment of a worker has.

It runs with ``python -c`` on hosts that may have no package, and imports the standard library only.
Its argument is a request in JSON: names of packages and modules, the spill folder, and paths.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import socket
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

#: Maximum number and bytes of the source files of a package that are compared.
_MOST_FILES = 5_000
_MOST_BYTES = 64_000_000


def _version(package: str) -> str | None:
    if package == "python":
        return platform.python_version()
    if package == "hyperplane":
        return _hyperplane_version()
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _hyperplane_version() -> str | None:
    """Read the version from the source: importing the package would take a second."""
    spec = importlib.util.find_spec("hyperplane")
    if spec is None or not spec.origin:
        return None
    text = Path(spec.origin).read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE)
    return found.group(1) if found else None


def _module(name: str) -> str | None:
    """Return the digest of a module's file; "" for a plain folder, None if there is none.

    A module that cannot be found or read for another reason cannot be imported either.
    """
    try:
        spec = importlib.util.find_spec(name)
        if spec is None:
            return None
        file = Path(spec.origin or "")
        return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
    except Exception:  # noqa: BLE001 - import hooks of the host may raise anything
        return None


def digest_sources(name: str, path: Path) -> dict[str, str]:
    """Return digests of the source files of a module or package, in the order of their names.

    ``path`` is the file, or the folder of a package; a folder without ``__init__.py`` has none. The
    digest of a file that cannot be read is empty. Beyond the limits the others are left out, which
    are the same ones of equal packages.
    """
    if not (path / "__init__.py").is_file():
        return {f"{name}{path.suffix}": _digest(path)} if path.is_file() else {}
    found: dict[str, str] = {}
    size = 0
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(each for each in folders if each[0] != "." and each != "__pycache__")
        below = Path(folder).relative_to(path)
        for file in sorted(each for each in files if each.endswith(".py")):
            source = Path(folder, file)
            try:
                size += source.stat().st_size
            except OSError:  # a link that leads nowhere
                continue
            if size > _MOST_BYTES or len(found) == _MOST_FILES:
                return found
            found[Path(name, below, file).as_posix()] = _digest(source)
    return found


def _digest(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()[:32]
    except OSError:
        return ""


def _sources(name: str) -> dict[str, str]:
    """Return the digests of the source files of a module that can be imported here."""
    try:
        spec = importlib.util.find_spec(name)
        file = Path((spec and spec.origin) or "").resolve()
        return digest_sources(name, file.parent if file.stem == "__init__" else file)
    except Exception:  # noqa: BLE001 - import hooks of the host may raise anything
        return {}


def _expand_user(path: str) -> Path:
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError:  # a user that does not exist
        return Path(path).absolute()


def _exists(path: Path) -> bool:
    """Return whether this user can see a path."""
    try:
        return path.exists()
    except OSError:
        return False


def _disk(path: str | None) -> dict[str, Any]:
    """Return what is known of the nearest folder of a path that this user can see."""
    folder = _expand_user(path or tempfile.gettempdir())
    while folder != folder.parent and not (_exists(folder) and folder.is_dir()):
        folder = folder.parent
    return {
        "folder": str(folder),
        "free": shutil.disk_usage(folder).free,
        "writable": _is_writable(folder),
        "type": _file_system(str(folder)),
    }


def _is_writable(folder: Path) -> bool:
    """Create and remove a file: the permissions alone do not show a read-only file system."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _file_system(folder: str) -> str:
    found, longest = "", -1
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    for line in lines.splitlines():
        _, point, kind = line.split()[:3]
        inside = folder == point or folder.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= longest:
            found, longest = kind, len(point)
    return found


def describe(request: dict[str, Any]) -> dict[str, Any]:
    """Return the environment as values that JSON can represent."""
    return {
        "versions": {name: _version(name) for name in request["packages"]},
        "modules": {name: _module(name) for name in request["modules"]},
        "sources": {name: _sources(name) for name in request["local"]},
        "disk": _disk(request["spill"]),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "interfaces": [name for _, name in socket.if_nameindex()],
        "paths": {path: _exists(_expand_user(path)) for path in request["paths"]},
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"environment": describe(json.loads(sys.argv[1]))}) + "\n")
