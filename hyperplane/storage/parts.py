"""Saving a folder of parts: each by a task of its own, and all of them published at once."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from dask.tokenize import tokenize

from hyperplane.errors import OutputExists, StorageError
from hyperplane.storage.appending import already_added, appended
from hyperplane.storage.attempts import attempt
from hyperplane.storage.commits import Commits
from hyperplane.storage.encoding import ENCODERS, Encoded, records
from hyperplane.storage.files import exists
from hyperplane.storage.formats import SUFFIX_OF
from hyperplane.storage.manifest import Manifest, Part
from hyperplane.storage.place import commits_of
from hyperplane.storage.plain import in_part
from hyperplane.storage.progress import run
from hyperplane.storage.request import Request
from hyperplane.storage.result import SaveResult
from hyperplane.storage.shelf import Shelf
from hyperplane.stores.places import Store

#: Seconds until a listing must show what was written; some stores take their time.
LISTED_WITHIN = 60.0


@dataclass(frozen=True)
class Writing:
    """How tasks write parts.

    Parameters
    ----------
    store : Store
        Where.
    folder : str
        Path of the folder for parts that are not yet published.
    format : str
        In what form.
    refuse : str
        URL for the error of a part that differs from what is there; empty to write it.
    shard : int or None
        The shard that writes.
    """

    store: Store
    folder: str
    format: str
    refuse: str = ""
    shard: int | None = None


def save_parts(obj: Any, request: Request) -> SaveResult:
    """Save a collection as a folder of parts."""
    commits = commits_of(request.target)
    base = commits.state()
    commits.settle(base)
    if base.manifest is not None and request.mode == "skip":
        return _result(request, base.manifest, written=0)
    old = base.manifest.parts if base.manifest else ()
    appends = request.mode == "append"
    added = already_added(request, base.manifest) if appends else ()
    with attempt_at(commits) as staged:
        manifest = written_parts(
            obj,
            request,
            staged,
            there=added if appends else old,
            kept=old if appends else (),
            refuses=request.mode == "error" and base.manifest is not None,
        )
        if base.manifest is not None and manifest.parts == (*old, *added):
            return _result(request, base.manifest, written=0)
        if appends:
            manifest = appended(manifest, request, base.manifest)
        had = {part.name for part in old}
        new = [part for part in manifest.parts if part.name not in had]
        verify(commits.shelf, staged, new)
        published = commits.publish(manifest, staged, base)
        return replace(_result(request, published, written=len(new)), published=True)


def written_parts(
    obj: Any,
    request: Request,
    folder: str,
    *,
    there: Sequence[Part],
    kept: Sequence[Part] = (),
    refuses: bool = False,
) -> Manifest:
    """Have the parts of a collection written aside.

    Parameters
    ----------
    folder : str
        Where to.
    there : sequence of Part
        Those in the same places; what is the same is not written again.
    kept : sequence of Part
        Those that come before all of these.
    refuses : bool
        Whether it is an error when one differs from what is there.
    """
    pieces = obj.to_delayed() if hasattr(obj, "to_delayed") else [obj]
    if refuses and len(pieces) != len(there):
        raise exists(request)
    writing = Writing(
        request.target.store,
        folder,
        request.format,
        request.target.url if refuses else "",
        request.shard[0] if request.shard else None,
    )
    each = [
        [piece, number + len(kept), writing, there[number] if number < len(there) else None]
        for number, piece in enumerate(pieces)
    ]
    if hasattr(obj, "to_delayed"):
        # With it come Dask's data frames and Polars, which take a second to import: not for a
        # file, nor for a shard of a process of its own.
        from hyperplane.collections.frames import task_graph

        tasks = task_graph.make_tasks(
            "save", tokenize(request.target.path, folder), write_part, each
        )
        parts = run(tasks, f"saving {request.target.url}")
    else:
        parts = [write_part(*arguments) for arguments in each]
    kind = "bag" if request.kind == "bag" else "dataframe"
    return Manifest(request.format, kind, (*kept, *parts))


def write_part(piece: Any, number: int, writing: Writing, there: Part | None) -> Part:
    """Write one part, in a task; unless the same is there already."""
    with in_part(number):
        made = _encoded(piece, writing.format)
    sha = hashlib.sha256(made.data).hexdigest()
    prefix = "part-" if writing.shard is None else f"part-{writing.shard:05d}-"
    # A task may run twice; only the part that its result names is ever published.
    name = f"{prefix}{number:05d}-{secrets.token_hex(4)}{SUFFIX_OF[writing.format]}"
    part = Part(name, len(made.data), sha, made.rows, writing.shard, made.schema)
    if there is not None and there.content == part.content:
        return replace(there, shard=writing.shard)
    if writing.refuse:
        raise OutputExists(
            writing.refuse,
            f"part {number} is not the one that is there; write mode='overwrite' to replace what "
            "is there, or mode='skip' to keep it",
        )
    Shelf(writing.store).put(f"{writing.folder}/{name}", made.data)
    return part


def _encoded(piece: Any, format: str) -> Encoded:  # noqa: A002
    if hasattr(piece, "columns"):
        return ENCODERS[format](piece)
    return records(piece, format)


@contextmanager
def attempt_at(commits: Commits) -> Iterator[str]:
    """A folder for what is not yet published, which is there for a block."""
    with attempt() as name:
        folder = f"{commits.target.beside}/{name}"
        check_writable(commits, folder)
        try:
            yield f"{folder}/data"
        finally:
            with suppress(StorageError):  # leftovers; what has gone wrong is on its way already
                commits.drop(folder)


def check_writable(commits: Commits, attempt: str) -> None:
    """Write next to nothing, so that a save that cannot be fails before a long computation."""
    probe = f"{attempt}/probe"
    commits.shelf.put(probe, b"")
    commits.shelf.remove([probe])


def verify(shelf: Shelf, folder: str, parts: Sequence[Part]) -> None:
    """Compare what was written with what the store lists.

    Raises
    ------
    StorageError
        When a part is missing, or of another size or checksum.
    """
    deadline = time.monotonic() + LISTED_WITHIN
    while True:
        seen = shelf.listing(folder)
        missing = [part for part in parts if part.name not in seen]
        if not missing or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    wrong = [part.name for part in missing]
    wrong += [
        part.name
        for part in parts
        if part.name in seen and int(seen[part.name]["size"] or 0) != part.size
    ]
    if wrong:
        some = ", ".join(wrong[:3]) + (", ..." if len(wrong) > 3 else "")
        raise StorageError(
            folder if shelf.store.local else shelf.store.system.unstrip_protocol(folder),
            f"{len(wrong)} of {len(parts)} parts are not listed as they were written ({some}); "
            "nothing was published, save again",
        )


def _result(request: Request, manifest: Manifest, *, written: int) -> SaveResult:
    return SaveResult(
        request.target.url, len(manifest.parts), manifest.rows, manifest.size, written
    )
