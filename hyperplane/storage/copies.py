"""Saving files and folders of this machine."""

from __future__ import annotations

import hashlib
from pathlib import Path

from hyperplane.errors import Fault, RequestError
from hyperplane.storage.files import exists, save_bytes
from hyperplane.storage.manifest import Manifest, Part
from hyperplane.storage.parts import attempt_at, verify
from hyperplane.storage.place import commits_of
from hyperplane.storage.request import Request
from hyperplane.storage.result import SaveResult


def save_path(path: Path, request: Request) -> SaveResult:
    """Save a file, or a folder with all that is in it.

    Raises
    ------
    RequestError
        When there is none of that name, or a folder without files.
    """
    path = path.expanduser()
    if path.is_file():
        return save_bytes(path.read_bytes(), None, request)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    if not files:
        raise RequestError([Fault("obj", repr(str(path)), "a file or folder with files in it")])
    return _save_folder(path, files, request)


def _save_folder(path: Path, files: list[Path], request: Request) -> SaveResult:
    target, commits = request.target, commits_of(request.target)
    base = commits.state()
    commits.settle(base)
    old = base.manifest
    parts = tuple(_part(path, file) for file in files)
    manifest = Manifest("files", "files", parts)
    if manifest.same_content(old) or (old is not None and request.mode == "skip"):
        shown = old or manifest
        return SaveResult(target.url, len(shown.parts), None, shown.size)
    if old is not None and request.mode != "overwrite":
        raise exists(request)
    with attempt_at(commits) as staged:

        def send(part: Part) -> None:
            commits.shelf.put(f"{staged}/{part.name}", (path / part.name).read_bytes())

        commits.shelf.each(send, parts)
        verify(commits.shelf, staged, parts)
        commits.publish(manifest, staged, base)
    return SaveResult(target.url, len(parts), None, manifest.size, written=len(parts))


def _part(folder: Path, file: Path) -> Part:
    data = file.read_bytes()
    name = file.relative_to(folder).as_posix()
    return Part(name, len(data), hashlib.sha256(data).hexdigest())
