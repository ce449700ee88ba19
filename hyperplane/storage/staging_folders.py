"""Folder for the files of a save that is not published yet, and checks of the store."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from hyperplane.core.errors import StorageError
from hyperplane.objectstore.retrying import is_full
from hyperplane.objectstore.store_files import StoreFiles
from hyperplane.storage.commit_protocol import CommitProtocol
from hyperplane.storage.manifest import ManifestEntry
from hyperplane.storage.save_attempts import running_attempt

#: Seconds until a listing must show written files; some stores are eventually consistent.
LISTING_TIMEOUT = 60.0


@contextmanager
def staging_folder(commits: CommitProtocol) -> Iterator[str]:
    """Yield the path of a staging folder for one attempt; remove it after the block."""
    with running_attempt() as name:
        folder = f"{commits.target.metadata_folder}/{name}"
        check_writable(commits, folder)
        try:
            with explain_full_store(commits.target.url):
                yield f"{folder}/data"
        finally:
            # Leftovers are harmless, and their error would hide that of the block.
            with suppress(StorageError):
                commits.discard_attempt(folder)


@contextmanager
def explain_full_store(url: str) -> Iterator[None]:
    """Add to errors of a full store how to remove what the save has left there."""
    try:
        yield
    except StorageError as error:
        if not is_full(error):
            raise
        problem = str(error).removeprefix(f"{error.url}: ")
        # Tasks on workers may go on to write after the folder has been removed.
        advice = f"then hyperplane storage clean {url} removes what the save has left"
        raise StorageError(error.url, f"{problem}; {advice}") from error


def check_writable(commits: CommitProtocol, attempt: str) -> None:
    """Write and remove an empty file, to report missing permissions before any computation."""
    probe = f"{attempt}/probe"
    commits.store_files.put(probe, b"")
    commits.store_files.remove([probe])


def verify_listing(store_files: StoreFiles, folder: str, parts: Sequence[ManifestEntry]) -> None:
    """Check that the store lists the written parts; wait for eventually consistent stores.

    Raises
    ------
    StorageError
        If a part is missing or of another size.
    """
    deadline = time.monotonic() + LISTING_TIMEOUT
    while True:
        listing = store_files.list_files(folder)
        missing = [part for part in parts if part.name not in listing]
        if not missing or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    incomplete = [part.name for part in missing]
    incomplete += [
        part.name
        for part in parts
        if part.name in listing and int(listing[part.name]["size"] or 0) != part.size
    ]
    if incomplete:
        examples = ", ".join(incomplete[:3]) + (", ..." if len(incomplete) > 3 else "")
        raise StorageError(
            folder
            if store_files.store.local
            else store_files.store.system.unstrip_protocol(folder),
            f"{len(incomplete)} of {len(parts)} parts are missing or incomplete in the store's "
            f"listing ({examples}); nothing was published, save again",
        )
