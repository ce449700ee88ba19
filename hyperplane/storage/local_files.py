"""Saving files and folders of this machine."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fsspec.asyn import AsyncFileSystem

from hyperplane.errors import Fault, RequestError
from hyperplane.storage.commit_selection import commits_of
from hyperplane.storage.manifest import Manifest, Part
from hyperplane.storage.multipart_upload import BLOCK, LargeFile, hashed
from hyperplane.storage.part_saving import attempt_at, verify
from hyperplane.storage.progress import bar
from hyperplane.storage.request import Request
from hyperplane.storage.result import SaveResult
from hyperplane.storage.retrying import told
from hyperplane.storage.single_file import Content, Held, exists, save_content
from hyperplane.stores.locations import Store


def save_path(path: Path, request: Request) -> SaveResult:
    """Save a file, or a folder with all that is in it.

    Raises
    ------
    RequestError
        When there is none of that name, or a folder without files.
    """
    path = path.expanduser()
    if path.is_file():
        with told(str(path)):
            content = _content(path, request.target.store)
        return save_content(content, None, request)
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
    with attempt_at(commits) as staged, bar(f"saving {target.url}", len(parts)) as advance:

        def send(part: Part) -> None:
            with told(str(path / part.name)):
                content = _content(path / part.name, target.store)
            content.put(commits.shelf, f"{staged}/{part.name}")
            advance()

        commits.shelf.each(send, parts)
        verify(commits.shelf, staged, parts)
        commits.publish(manifest, staged, base)
    return SaveResult(target.url, len(parts), None, manifest.size, written=len(parts))


def _content(file: Path, store: Store) -> Content:
    """A file of this machine; the bytes of it only where they are few, or cannot come in pieces."""
    large = LargeFile(file)
    # Of others, fsspec's own way would show what has come when the sending breaks off.
    in_pieces = store.local or isinstance(store.system, AsyncFileSystem)
    return large if large.size > BLOCK and in_pieces else Held(file.read_bytes())


def _part(folder: Path, file: Path) -> Part:
    sha = hashlib.sha256()
    size = hashed(file, sha.update)
    return Part(file.relative_to(folder).as_posix(), size, sha.hexdigest())
