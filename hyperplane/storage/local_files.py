"""Save local files and folders, given as ``pathlib.Path``."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fsspec.asyn import AsyncFileSystem

from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.progress import show_progress
from hyperplane.objectstore.locations import Store
from hyperplane.objectstore.multipart_upload import BLOCK_BYTES, MultipartUpload, hash_file
from hyperplane.objectstore.retrying import translate_errors
from hyperplane.storage.commit_protocol import commit_protocol_for
from hyperplane.storage.manifest import Manifest, ManifestEntry
from hyperplane.storage.replaced_files import check_replaceable
from hyperplane.storage.request import SaveRequest
from hyperplane.storage.result import SaveResult
from hyperplane.storage.single_file import BytesContent, FileContent, exists_error, save_content
from hyperplane.storage.staging_folders import staging_folder, verify_listing


def save_path(path: Path, request: SaveRequest) -> SaveResult:
    """Save a file, or a folder with all files in it.

    Raises
    ------
    RequestError
        If the path does not exist, or is a folder without files.
    """
    path = path.expanduser()
    if path.is_file():
        with translate_errors(str(path)):
            content = _open_content(path, request.target.store)
        return save_content(content, None, request)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    if not files:
        raise RequestError(
            [Fault("obj", repr(str(path)), "an existing file, or a folder with files in it")]
        )
    return _save_folder(path, files, request)


def _save_folder(path: Path, files: list[Path], request: SaveRequest) -> SaveResult:
    """Save all files of a folder, published in one step."""
    target, commits = request.target, commit_protocol_for(request.target)
    base = commits.read_state()
    check_replaceable(target.url, base.manifest)
    commits.finish_interrupted(base)
    old = base.manifest
    parts = tuple(_hash_entry(path, file) for file in files)
    manifest = Manifest("files", "files", parts)
    # Names are compared, too: they are those of the user, unlike the names of other parts.
    same = old is not None and (old.format, old.parts) == (manifest.format, parts)
    if old is not None and (same or request.mode == "skip"):
        return SaveResult(target.url, len(old.parts), None, old.size)
    if old is not None and request.mode != "overwrite":
        raise exists_error(request)
    with (
        staging_folder(commits) as staged,
        show_progress(f"saving {target.url}", len(parts)) as advance,
    ):

        def send(part: ManifestEntry) -> None:
            with translate_errors(str(path / part.name)):
                content = _open_content(path / part.name, target.store)
            content.put(commits.store_files, f"{staged}/{part.name}")
            advance()

        commits.store_files.map_concurrently(send, parts)
        verify_listing(commits.store_files, staged, parts)
        commits.publish(manifest, staged, base)
    return SaveResult(
        target.url, len(parts), None, manifest.size, written=len(parts), published=True
    )


def _open_content(file: Path, store: Store) -> FileContent:
    """Return a file's content: in memory if it is small or cannot be uploaded in blocks."""
    large = MultipartUpload(file)
    # With other file systems an interrupted upload would leave a truncated file.
    in_blocks = store.local or isinstance(store.system, AsyncFileSystem)
    return large if large.size > BLOCK_BYTES and in_blocks else BytesContent(file.read_bytes())


def _hash_entry(folder: Path, file: Path) -> ManifestEntry:
    """Return the manifest entry of a local file."""
    sha = hashlib.sha256()
    size = hash_file(file, sha.update)
    return ManifestEntry(file.relative_to(folder).as_posix(), size, sha.hexdigest())
