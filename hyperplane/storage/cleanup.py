"""Find and remove leftovers of killed and failed saves beside a saved output."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.public_calls import check_call
from hyperplane.core.units import format_bytes, parse_seconds, plural
from hyperplane.objectstore.retrying import translate_errors
from hyperplane.objectstore.save_target import (
    Target,
    check_options,
    read_only_faults,
    resolve_target,
)
from hyperplane.objectstore.store_files import StoreFiles
from hyperplane.storage.commit_protocol import CommitProtocol, commit_protocol_for
from hyperplane.storage.published_state import PublishedState
from hyperplane.storage.save_attempts import is_attempt, is_local_attempt, is_running
from hyperplane.storage.shard_saving import run_of_folder

_COMMIT = re.compile(r"commit-([0-9]{8})\.(?:json|done)")
_SHARDS = re.compile(r"shards-[0-9]+-(.+)")


@dataclass(frozen=True)
class CleanupReport:
    """The result of :func:`clean`.

    Parameters
    ----------
    url : str
        The saved output.
    removed : tuple of str
        Names of the leftovers that were removed, or would be with ``dry_run=False``.
    files, nbytes : int
        Number and bytes of the files in these leftovers.
    kept : tuple of str
        Names of attempts that may still be running.
    dry_run : bool
        Whether the leftovers are still there, because ``dry_run=True`` was passed.
    found : bool
        Whether anything was saved there, or left by a save.
    """

    url: str
    removed: tuple[str, ...]
    files: int
    nbytes: int
    kept: tuple[str, ...]
    dry_run: bool = False
    found: bool = True

    def __str__(self) -> str:
        if not self.found:
            return f"{self.url}: nothing was saved there; check the name"
        verb = "would remove" if self.dry_run else "removed"
        lines = [f"{self.url}: {plural(self.files, 'leftover file')}, {format_bytes(self.nbytes)}"]
        lines += [f"  {verb} {name}" for name in self.removed]
        lines += [f"  kept {name}: it may still be in use" for name in self.kept]
        return "\n".join(lines)


@check_call(outcome="nothing was removed")
def clean(
    url: str | PathLike[str],
    *,
    older_than: str | float = "24h",
    dry_run: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> CleanupReport:
    """Remove leftovers of killed and failed saves; complete a commit that was interrupted.

    Leftovers are never loaded; they only take space.

    Parameters
    ----------
    url : str or path
        The saved output.
    older_than : str or float
        Minimum age, in seconds or as text such as ``"2h"``, of leftovers that may still be in use:
        shards of incomplete runs, manifests, temporary files, and parts of saves on other machines
        and in other containers. Parts of a save on this machine are leftovers once it has ended.
    dry_run : bool
        Whether to report only and remove nothing.
    storage_options : mapping, optional
        Options of the file system.
    **options
        More options of the file system.

    Returns
    -------
    CleanupReport
        Names, number, and bytes of the leftovers.

    Raises
    ------
    RequestError
        With every fault of the call.
    StorageError
        If the store refuses a request.

    Examples
    --------
    >>> import pandas as pd, hyperplane
    >>> rows = pd.DataFrame({"n": [1, 2, 3]})
    >>> result = hyperplane.save(rows, "memory://docs/tidy.parquet")
    >>> hyperplane.storage.clean("memory://docs/tidy.parquet").files
    0
    """
    check_options(url, options, clean)
    check(find_clean_faults(url, older_than, dry_run, storage_options, options))
    target, age = resolve_target(url, storage_options, options), parse_seconds(older_than)
    commits = commit_protocol_for(target)
    state = commits.read_state()
    if not dry_run:
        commits.finish_interrupted(state)
    store_files = commits.store_files
    groups: dict[str, dict[str, int]] = {}
    for name, info in store_files.list_files(target.metadata_folder).items():
        group = name.partition("/")[0]
        groups.setdefault(group, {})[name] = int(info["size"] or 0)
    leftovers = [name for name in groups if _is_leftover(name, state, commits, groups[name], age)]
    kept = [name for name in groups if name not in leftovers and is_attempt(name)]
    drafts = _find_drafts(target, age)
    sizes = [size for name in leftovers for size in groups[name].values()]
    sizes += [draft.stat().st_size for draft in drafts if draft.exists()]
    if not dry_run:
        store_files.remove(
            f"{target.metadata_folder}/{file}" for name in leftovers for file in groups[name]
        )
        for name in leftovers:
            store_files.remove_folder(f"{target.metadata_folder}/{name}")
        for draft in drafts:
            draft.unlink(missing_ok=True)
    found = bool(groups or drafts or _exists(target))
    if not (dry_run or kept or state.version) and target.store.local:
        with contextlib.suppress(OSError):  # not empty, or there is none
            Path(target.metadata_folder).rmdir()
    return CleanupReport(
        target.url,
        tuple(sorted([*leftovers, *(draft.name for draft in drafts)])),
        sum(len(groups[name]) for name in leftovers) + len(drafts),
        sum(sizes),
        tuple(sorted(kept)),
        dry_run,
        found,
    )


def _exists(target: Target) -> bool:
    """Return whether there is a file or folder, which may be of another program."""
    with translate_errors(target.url, target.store.options):
        return any(map(target.store.system.exists, (target.path, target.metadata_folder)))


def find_clean_faults(
    url: str | PathLike[str],
    older_than: Any,
    dry_run: Any = False,
    storage_options: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> list[Fault]:
    """Return the faults of the arguments of :func:`clean`; reads nothing from the store."""
    faults = []
    try:
        faults += read_only_faults(resolve_target(url, storage_options, options or {}))
    except RequestError as error:
        faults += error.faults
    faults += find_age_faults(older_than)
    if not isinstance(dry_run, bool):
        faults.append(Fault("dry_run", repr(dry_run)[:80], "True or False"))
    return faults


def find_age_faults(older_than: Any) -> list[Fault]:
    """Return the fault of an invalid age."""
    try:
        valid = 0 <= parse_seconds(older_than) < math.inf
    except ValueError:
        valid = False
    allowed = "a duration such as '2h', or a number of seconds, at least 0"
    return [] if valid else [Fault("older_than", repr(older_than)[:80], allowed)]


def _is_leftover(
    name: str, state: PublishedState, commits: CommitProtocol, files: Mapping[str, int], age: float
) -> bool:
    """Return whether no process needs an entry of the metadata folder any longer."""
    target, store_files = commits.target, commits.store_files
    if is_local_attempt(name):
        # is_running first: an attempt that has ended is not published between the two calls.
        return not is_running(name) and not commits.is_needed(f"{target.metadata_folder}/{name}")
    if is_attempt(name):
        return all(
            _is_older(store_files, f"{target.metadata_folder}/{file}", age) for file in files
        )
    shards = _SHARDS.fullmatch(name)
    if shards:
        run = run_of_folder(shards[1])
        is_published = state.manifest is not None and state.manifest.details.get("run") == run
        return is_published or all(
            _is_older(store_files, f"{target.metadata_folder}/{file}", age) for file in files
        )
    commit = _COMMIT.fullmatch(name)
    if commit:
        return int(commit[1]) < int(state.version or 0)
    # A manifest is written just before its parts are published, so a recent one may be in use.
    is_current = name == f"{state.version}.json"
    stale = name.endswith(".part") or (name.endswith(".json") and not is_current)
    return stale and _is_older(store_files, f"{target.metadata_folder}/{name}", age)


def _is_older(store_files: StoreFiles, path: str, age: float) -> bool:
    """Return whether a file is at least ``age`` seconds old; False if its age is unknown."""
    with contextlib.suppress(OSError, NotImplementedError, KeyError):
        written: dt.datetime = store_files.store.system.modified(path)
        now = dt.datetime.now(tz=written.tzinfo or dt.UTC)
        return (now - written.replace(tzinfo=now.tzinfo)).total_seconds() >= age
    return False


def _find_drafts(target: Target, age: float) -> list[Path]:
    """Return temporary files of interrupted writes beside a target on local disk."""
    if not target.store.local:
        return []
    folder = Path(target.parent)
    if not folder.is_dir():
        return []
    draft = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{12}}\.part")
    now = dt.datetime.now(tz=dt.UTC).timestamp()
    return [
        file
        for file in folder.iterdir()
        if draft.fullmatch(file.name)
        if now - file.stat().st_mtime > age or age == 0
    ]
