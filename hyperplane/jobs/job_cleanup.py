"""Remove ended jobs of this user on this machine: their records and folders."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hyperplane.core.errors import Fault, JobError, check
from hyperplane.jobs.execution.job_folder import is_in_use
from hyperplane.jobs.store.job_records import PROCESSED, Job
from hyperplane.jobs.store.jobs_home import jobs_folder, open_store, store_url, this_machine
from hyperplane.platforms.local.file_locks import try_lock

#: Beginning of the names of folders that a cleanup removes; the key of the store, a dot and the id
#: of the job follow. A process that was killed may leave them, before or after the job was removed
#: from the store.
_REMOVED = ".removed-"
#: Age of folders without the key of a store, of a former version, that are removed.
_UNKNOWN_STORE_SECONDS = 30 * 86_400.0
#: File of the lock of a cleanup, in the folder for jobs.
_LOCK = ".cleanup.lock"


@dataclass(frozen=True)
class RemovedJob:
    """A job that was or would be removed.

    Parameters
    ----------
    job : Job
        The job.
    size : int
        Bytes of its files.
    kept_folder : str
        Folder that is not removed, because it is not in the folder for jobs or cannot be removed.
    """

    job: Job
    size: int
    kept_folder: str = ""


def clean_jobs(
    older_than: float | None = None,
    keep: int | None = None,
    *,
    pipeline: str | None = None,
    dry_run: bool = False,
    report: Callable[[RemovedJob], object] = lambda removed: None,
) -> list[RemovedJob]:
    """Remove ended jobs, and return them, oldest first.

    Jobs that have not ended, or whose processes still run, are never removed.

    Parameters
    ----------
    older_than : float, optional
        Only jobs that ended at least this many seconds ago.
    keep : int, optional
        Number of ended jobs of each pipeline that are kept, the most recently submitted.
    pipeline : str, optional
        Only jobs of this pipeline.
    dry_run : bool
        Remove nothing.
    report : callable
        Called with each job once it is removed, or would be.

    Raises
    ------
    RequestError
        If neither limit is given, or one is negative.
    JobError
        If another process removes jobs now, or with each folder that cannot be moved; the other
        jobs are removed.
    """
    faults = []
    if older_than is None and keep is None:
        advice = "give --older-than, --keep or both"
        faults.append(Fault("older-than", "", "a limit of what is removed", advice))
    if older_than is not None and not older_than >= 0:
        faults.append(Fault("older-than", str(older_than), "a duration of at least 0"))
    if keep is not None and keep < 0:
        faults.append(Fault("keep", str(keep), "at least 0"))
    check(faults)
    folder = jobs_folder() / "jobs"
    if dry_run:
        selected = [job for job in _select(older_than, keep, pipeline) if not is_in_use(job)]
        removed = [_measure(job, folder) for job in reversed(selected)]
        for each in removed:
            report(each)
        return removed
    folder.mkdir(parents=True, exist_ok=True)
    lock = try_lock(jobs_folder() / _LOCK)
    if lock is None:
        raise JobError("", "another process removes jobs now; try again when it has ended")
    with lock:
        _finish_earlier_cleanup(folder)
        return _remove_all(_select(older_than, keep, pipeline), folder, report)


def _remove_all(
    selected: list[Job], folder: Path, report: Callable[[RemovedJob], object]
) -> list[RemovedJob]:
    """Remove jobs, oldest first; then raise the errors."""
    removed, errors = [], []
    for job in reversed(selected):
        if is_in_use(job):
            continue
        try:
            outcome = _remove(job, folder)
        except JobError as error:
            errors.append(error)
            continue
        if outcome is not None:
            removed.append(outcome)
            report(outcome)
    if len(errors) > 1:
        raise JobError("", "\n".join(map(str, errors)))
    if errors:
        raise errors[0]
    return removed


def _select(older_than: float | None, keep: int | None, pipeline: str | None) -> list[Job]:
    """Return the jobs that may be removed, most recently submitted first."""
    ended = open_store().find(statuses=PROCESSED, machine=this_machine(), pipeline=pipeline)
    latest_end = time.time() - (older_than or 0)
    newer: Counter[str] = Counter()
    selected = []
    for job in ended:
        newer[job.pipeline_name] += 1
        if newer[job.pipeline_name] > (keep or 0) and job.ended <= latest_end:
            selected.append(job)
    return selected


def _measure(job: Job, folder: Path) -> RemovedJob:
    own = _is_own_folder(job, folder)
    size = _folder_size(job.folder_path) if own else 0
    return RemovedJob(job, size, "" if own else job.folder)


def _remove(job: Job, folder: Path) -> RemovedJob | None:
    """Remove a job; None if it was resumed or removed since it was selected."""
    measured = _measure(job, folder)
    moved, is_moved = folder / f"{_REMOVED}{_store_key()}.{job.id}", False
    if moved.exists():  # it could not be removed
        moved = moved.with_name(f"{moved.name}~{time.time_ns()}")

    def move_folder() -> None:
        # A rename is fast, unlike the removal, so that the store is locked for a moment only.
        nonlocal is_moved
        if not measured.kept_folder:
            with suppress(FileNotFoundError):
                job.folder_path.rename(moved)
                is_moved = True

    try:
        if not open_store().remove_ended(job.id, move_folder):
            return None
    except BaseException as error:
        if is_moved:
            with suppress(OSError):
                moved.rename(job.folder_path)
        if isinstance(error, OSError):
            message = f"its folder {job.folder} cannot be moved ({error}); the job is not removed"
            raise JobError(job.id, message) from error
        raise
    if not _remove_folder(moved):
        return RemovedJob(job, measured.size, str(moved))
    return measured


def _is_own_folder(job: Job, folder: Path) -> bool:
    """Whether a job's folder is the one that a submission makes; a damaged record may name any."""
    return job.id not in ("", ".", "..") and job.folder_path == folder / Path(job.id).name


def _folder_size(folder: Path) -> int:
    """Return the bytes of the files in a folder, without following links."""
    size = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                size += Path(root, name).lstat().st_size
    return size


def _finish_earlier_cleanup(folder: Path) -> None:
    """Remove the folders that a killed cleanup has left, and move back those of jobs in the store.

    It may have been killed between the move of a folder and the removal of the job. Only with the
    same store, because the job may still be in another one. A former version wrote no key: such a
    folder is removed when it is so old that a cleanup with its store would have moved it back.
    """
    leftovers = {path: _parse_moved(path) for path in folder.glob(f"{_REMOVED}*")}
    ids = [job_id for _, job_id in leftovers.values()]
    known = open_store().get_many(ids) if ids else {}
    for path, (key, job_id) in leftovers.items():
        if job_id in known:
            if not os.path.lexists(folder / job_id):
                path.rename(folder / job_id)
        elif key == _store_key() or (not key and _moved_seconds(path) > _UNKNOWN_STORE_SECONDS):
            _remove_folder(path)


def _moved_seconds(path: Path) -> float:
    """Return the seconds since a folder was renamed."""
    return time.time() - path.lstat().st_ctime


def _parse_moved(path: Path) -> tuple[str, str]:
    """Return the key of the store and the id of the job in the name of a moved folder."""
    key, dot, job_id = path.name[len(_REMOVED) :].partition("~")[0].partition(".")
    return (key, job_id) if dot else ("", key)


def _store_key() -> str:
    """Return a text that identifies the store, also after its password has changed."""
    from hyperplane.jobs.store.database import hide_password  # needs the extra of the job store

    return hashlib.sha256(hide_password(store_url()).encode()).hexdigest()[:8]


def _remove_folder(folder: Path) -> bool:
    """Remove a folder; return whether it is gone. Of a link only the link is removed."""
    if folder.is_symlink():
        folder.unlink(missing_ok=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()
