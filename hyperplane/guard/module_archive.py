"""Archive of local modules and editable packages, to ship them to workers."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.units import format_bytes, plural
from hyperplane.guard.preflight.missing_modules import MODULES, describe_modules
from hyperplane.guard.preflight.program_modules import LocalModule
from hyperplane.guard.preflight.report import PreflightFinding

#: Maximum bytes of all files together: each worker process receives them.
LARGEST_BYTES = 50_000_000
#: Maximum number of files; the walk through a folder with more of them ends there.
MOST_FILES = 10_000
#: Names of folders and files that are not shipped: hidden ones and caches.
_SKIPPED = (".*", "__pycache__", "*.pyc", "node_modules", "*.egg-info")
#: Names of folders of builds, which may also be those of packages.
_BUILDS = ("build", "dist")
#: Names of files, and of folders, that may hold secrets; code and packages may have these names.
_SECRETS = (
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "id_rsa*", "id_dsa*"),
    *("id_ecdsa*", "id_ed25519*", "*.env", "*credential*", "*secret*", "*passwords*"),
    *("password.*", "passwd*", "*kubeconfig*", "token", "token.*", "tokens", "tokens.*"),
    *("*[-_.]token", "*[-_.]token.*"),
    *("*[-_]key.json", "*[-_]key.txt", "service-account*.json", "service_account*.json"),
)
#: Files of code, which a package needs to be imported.
_CODE = (".py", ".pyi", ".so", ".pyd")
#: Time of all entries, so that equal content has equal bytes.
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class ModuleArchive:
    """A zip archive of modules.

    Parameters
    ----------
    names : tuple of str
        Names of the modules.
    digest : str
        SHA-256 of the names and the content of all files.
    data : bytes
        The archive.
    """

    names: tuple[str, ...]
    digest: str
    data: bytes = field(repr=False)


def pack_modules(modules: Sequence[LocalModule]) -> ModuleArchive:
    """Return an archive of modules, without hidden files, caches and files of secrets.

    Raises
    ------
    RequestError
        If they have more than :data:`LARGEST_BYTES`, or :data:`MOST_FILES` files, together.
    """
    files = _list_all(modules)
    hashed = hashlib.sha256()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in sorted(pair for listed in files.values() for pair in listed):
            content = file.read_bytes()
            hashed.update(f"{name}\0{len(content)}\0".encode())
            hashed.update(content)
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)
    return ModuleArchive(tuple(files), hashed.hexdigest(), buffer.getvalue())


def check_shipment(modules: Sequence[LocalModule]) -> PreflightFinding:
    """Return whether modules can be shipped: a fault where :func:`pack_modules` raises an error."""
    try:
        _list_all(modules)
    except RequestError as error:
        [fault] = error.faults
        text = f"{fault.where}={fault.asked} ships {fault.allowed}"
        return PreflightFinding(MODULES, "fault", text, fault.advice)
    except OSError as error:
        return PreflightFinding(MODULES, "fault", f"a module cannot be read: {error}")
    text = f"{describe_modules(modules)}: shipped to the workers (sync=True)"
    return PreflightFinding(MODULES, "ok", text)


def _list_all(modules: Sequence[LocalModule]) -> dict[str, list[tuple[str, Path]]]:
    """Return the files of each module; stop with a RequestError where they exceed a limit."""
    files: dict[str, list[tuple[str, Path]]] = {module.name: [] for module in modules}
    sizes = dict.fromkeys(files, 0)
    for module in modules:
        for name, file in _list_files(module):
            files[module.name].append((name, file))
            sizes[module.name] += file.stat().st_size
            if sum(sizes.values()) > LARGEST_BYTES or sum(map(len, files.values())) > MOST_FILES:
                largest = max(files, key=lambda name: (sizes[name], len(files[name])))
                check([_too_large(largest, sizes[largest], len(files[largest]))])
    return files


def _too_large(largest: str, size: int, count: int) -> Fault:
    allowed = (
        f"local modules of at most {format_bytes(LARGEST_BYTES)} and {MOST_FILES} files together; "
        f"{largest} has {format_bytes(size)} in {plural(count, 'file')}, or more"
    )
    advice = f"install {largest} on the workers, or move its data elsewhere"
    return Fault("sync", "True", allowed, advice)


def _list_files(module: LocalModule) -> Iterator[tuple[str, Path]]:
    """Yield the files of a module, each with its name in the archive."""
    if module.path.is_file():
        yield module.path.name, module.path
        return
    yield from _walk(module.path, module.name)


def _walk(folder: Path, name: str) -> Iterator[tuple[str, Path]]:
    for entry in sorted(folder.iterdir()):
        if entry.is_symlink() or _matches(entry, _SKIPPED):
            continue  # a link may lead out of the package
        if entry.is_dir():
            is_package = (entry / "__init__.py").is_file()
            if is_package or not _matches(entry, (*_BUILDS, *_SECRETS)):
                yield from _walk(entry, f"{name}/{entry.name}")
        elif entry.is_file() and (entry.suffix in _CODE or not _matches(entry, _SECRETS)):
            yield f"{name}/{entry.name}", entry


def _matches(entry: Path, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(entry.name.lower(), pattern) for pattern in patterns)
