"""Saving one shard of several: each commits for itself, and the last one publishes the whole."""

from __future__ import annotations

import re
from collections.abc import Mapping
from os import PathLike
from typing import Any

from hyperplane.errors import OutputConflict, StorageError
from hyperplane.storage.commits import Commits, State
from hyperplane.storage.files import exists
from hyperplane.storage.manifest import Manifest, Part
from hyperplane.storage.parts import check_writable, verify, written_parts
from hyperplane.storage.place import commits_of
from hyperplane.storage.request import Request
from hyperplane.storage.result import SaveResult
from hyperplane.storage.target import target_of

_RECORD = re.compile(r"shards-([0-9]+)-([^/]+)/records/([0-9]+)\.json")


def save_shard(obj: Any, request: Request) -> SaveResult:
    """Save the parts of one shard; others see the whole once all shards are there."""
    index, count = request.shard or (0, 1)
    commits = commits_of(request.target)
    base = commits.state()
    commits.settle(base)
    old = base.manifest
    if old is not None and (request.mode == "skip" or old.shards != count):
        if request.mode == "error":
            raise exists(request)
        if request.mode == "skip":
            return SaveResult(request.target.url, len(old.parts), old.rows, old.size)
    run = _Run(commits, base, count)
    committed = run.record(index)
    check_writable(commits, run.folder)
    of_old = old.parts if old is not None and old.shards == count else ()
    there = committed.parts if committed else tuple(p for p in of_old if p.shard == index)
    seen = State(base.version, Manifest(request.format, "dataframe", there)) if there else State()
    made = written_parts(obj, request, seen, f"{run.folder}/data", reuse=True)
    known = {part.name for part in there}
    new = [part for part in made.parts if part.name not in known]
    if committed is not None:
        return _repeated(request, run, made, committed, new)
    if there and not new and request.mode == "error":
        commits.shelf.remove_folder(run.folder)
        return _result(request, made, 0, complete=True)
    if there and request.mode == "error":
        run.discard(new)
        raise exists(request)
    verify(commits.shelf, f"{run.folder}/data", new)
    try:
        commits.shelf.put_new(run.path(index), made.to_json().encode())
    except FileExistsError:
        return _repeated(request, run, made, run.record(index), new)
    return _result(request, made, len(new), complete=run.publish_if_whole())


class _Run:
    """The shards of one run at one place: all that began from what is published there now."""

    def __init__(self, commits: Commits, base: State, count: int) -> None:
        self.commits, self.base, self.count = commits, base, count
        self.folder = f"{commits.target.beside}/shards-{count}-{base.version or 'first'}"

    def path(self, index: int) -> str:
        """Where the manifest of a shard is."""
        return f"{self.folder}/records/{index:05d}.json"

    def record(self, index: int) -> Manifest | None:
        """The manifest of a shard, once it is committed."""
        found = self.commits.shelf.get(self.path(index))
        return None if found is None else Manifest.from_json(found)

    def discard(self, parts: list[Part]) -> None:
        """Remove parts that are not to be published."""
        self.commits.shelf.remove(f"{self.folder}/data/{part.name}" for part in parts)

    def publish_if_whole(self) -> bool:
        """Publish when all shards are there; the one that sees that first does it."""
        names = self.commits.shelf.listing(f"{self.folder}/records")
        if len(names) < self.count:
            return False
        shards = [self.record(index) for index in range(self.count)]
        found = [shard for shard in shards if shard is not None]
        if len(found) < self.count:
            return self._published(())  # somebody has published and cleared away meanwhile
        parts = tuple(part for shard in found for part in shard.parts)
        whole = Manifest(found[0].format, found[0].kind, parts, shards=self.count)
        old = self.base.manifest
        if old is None or whole.parts != old.parts:
            try:
                self.commits.publish(whole, f"{self.folder}/data", self.base)
            except OutputConflict:
                if not self._published(parts):
                    raise
        self.commits.shelf.remove_folder(self.folder)
        return True

    def _published(self, parts: tuple[Part, ...]) -> bool:
        now = self.commits.state().manifest
        return now is not None and now.shards == self.count and (not parts or now.parts == parts)


def _repeated(
    request: Request, run: _Run, made: Manifest, committed: Manifest | None, new: list[Part]
) -> SaveResult:
    """A shard that another run of it has committed: the same is fine, anything else is not."""
    run.discard(new)
    if committed is not None and made.same_content(committed):
        return _result(request, committed, 0, complete=run.publish_if_whole())
    raise OutputConflict(
        request.target.url,
        f"another run of shard {request.shard} has committed other rows; what it committed stands",
    )


def _result(request: Request, manifest: Manifest, written: int, *, complete: bool) -> SaveResult:
    return SaveResult(
        request.target.url,
        len(manifest.parts),
        manifest.rows,
        manifest.size,
        written,
        complete=complete,
    )


def missing_shards(
    url: str | PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[int]:
    """The shards that have not committed yet.

    Parameters
    ----------
    url : str or path
        Where the shards are saved.
    storage_options : mapping, optional
        For the file system.
    **options
        More of them.

    Returns
    -------
    list of int
        Their indices in order; none when the whole is there.

    Raises
    ------
    StorageError
        When no shard has been saved there.

    Examples
    --------
    >>> import pandas as pd, hyperplane
    >>> rows = pd.DataFrame({"n": [1, 2, 3]})
    >>> result = hyperplane.save(rows, "memory://docs/shards", shard=(1, 3))
    >>> missing_shards("memory://docs/shards")
    [0, 2]
    """
    target = target_of(url, {**(storage_options or {}), **options})
    commits = commits_of(target)
    base = commits.state()
    version = base.version or "first"
    found: dict[int, set[int]] = {}
    for match in map(_RECORD.fullmatch, commits.shelf.listing(target.beside)):
        if match and match[2] == version:
            found.setdefault(int(match[1]), set()).add(int(match[3]))
    if found:
        count, have = max(found.items(), key=lambda item: len(item[1]))
        return sorted(set(range(count)) - have)
    if base.manifest is None or base.manifest.shards is None:
        raise StorageError(target.url, "no shard has been saved there; check the name")
    return []
