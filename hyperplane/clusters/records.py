"""Records of the clusters that this user's processes run on this machine.

A record is one small file that only its owner can read, in a folder that only its owner can enter.
It contains the owning process and its start time. The next process that reads the records removes
those whose process has ended, together with the scratch folders of their clusters.

Containers that share these folders use the same process IDs for different processes. Each running
system (a boot and a process namespace) therefore has separate folders, and the files in another
system's folders are removed only when no process holds their locks.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from hyperplane.clusters import job_dashboards
from hyperplane.clusters.record_folders import record_folder, record_folders, write_draft
from hyperplane.core.folder_entries import find_in
from hyperplane.core.units import bytes_to_gb
from hyperplane.platforms.local import file_locks, temporary_folders
from hyperplane.platforms.local.private_folders import (
    folders_of_other_systems,
    private_folder,
    private_folders,
    remove_empty,
)
from hyperplane.platforms.local.process_identity import start_time

if TYPE_CHECKING:
    # Worker processes import this module; the models of a plan would load pydantic in each of them.
    from hyperplane.spec.plan import ClusterPlan

if sys.platform != "win32":
    import fcntl

#: Seconds to wait for another process that holds the lock of the records.
LOCK_TIMEOUT_SECONDS = 5.0
#: Seconds after which the draft of a record counts as abandoned; it is written in milliseconds.
_ABANDONED = 60.0
#: Thirty years in seconds. Start times of processes count from the boot of the system; larger ones
#: are from older versions, or from systems without that figure, and count from 1970.
_LONGEST_BOOT = 1e9


@dataclass(frozen=True)
class ClusterRecord:
    """A cluster that runs or starts, with the fields of its file.

    Parameters
    ----------
    name, engine : str
        Names of the cluster and of its engine.
    scheduler, dashboard : str
        Addresses; empty while the cluster starts.
    pid : int
        The owning process.
    started : float
        When that process started, see :func:`own_start_time`.
    workers, threads : int
        Numbers of worker processes and of their threads.
    ram_gb : float
        Memory of all worker processes together.
    scratch : str
        Folder of the cluster's files: data that workers on this machine spill, or the key pair and
        logs of Slurm jobs.
    client : dict
        Settings for clients of the cluster, as its framework writes them.
    direct_to_workers : bool
        Whether clients fetch results from the workers instead of from the scheduler.
    security : dict
        Credentials of clients, such as the key pair of a cluster with TLS, as text. They are
        secret; only the owner can read the file.
    job : str
        The pipeline job whose step started the cluster; empty otherwise.
    min_workers : int
        Least worker processes of an adaptive cluster, whose other sizes are its largest; else 0.
    """

    name: str
    engine: str
    scheduler: str
    dashboard: str
    pid: int
    started: float
    workers: int
    threads: int
    ram_gb: float
    scratch: str = ""
    client: dict[str, Any] = field(default_factory=dict)
    direct_to_workers: bool = False
    security: dict[str, str] = field(default_factory=dict, repr=False)
    job: str = field(default_factory=lambda: os.environ.get("HYPERPLANE_JOB_ID", ""))
    min_workers: int = 0

    @classmethod
    def from_plan(cls, plan: ClusterPlan, **others: Any) -> ClusterRecord:
        """Return the record of a cluster that this process is about to start.

        ``others`` are fields in addition to those of the plan, or in place of them.
        """
        nodes = plan.nodes if plan.max_nodes is None else plan.max_nodes
        fields: dict[str, Any] = {
            "name": plan.name,
            "engine": plan.engine,
            "scheduler": "",
            "dashboard": "",
            "pid": os.getpid(),
            "started": own_start_time(),
            "workers": nodes * plan.worker.nprocs,
            "threads": nodes * plan.worker.total_threads,
            "ram_gb": bytes_to_gb(nodes * plan.worker.total_ram),
            "min_workers": 0 if plan.max_nodes is None else plan.dask_workers,
        }
        return cls(**{**fields, **others})

    @property
    def names(self) -> set[str]:
        """Names by which it is found; a gateway's address ends with its name for the cluster."""
        return {self.name, self.scheduler.rpartition("/")[2]}

    def is_alive(self) -> bool:
        """Return whether the owning process still runs."""
        try:
            owner = psutil.Process(self.pid)
            begun = owner.create_time() if self.started > _LONGEST_BOOT else _start_time(self.pid)
            return abs(begun - self.started) < 1 and owner.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


def own_start_time() -> float:
    """Return when this process started, in seconds since boot, or since 1970 if that is unknown.

    Not the time of day: when the clock is set, it changes for running processes, and their clusters
    would be removed as those of dead processes.
    """
    return _start_time(os.getpid())


def _start_time(pid: int) -> float:
    ticks = start_time(pid)
    return int(ticks) / os.sysconf("SC_CLK_TCK") if ticks else psutil.Process(pid).create_time()


def reserve(record: ClusterRecord, parent: str | None) -> ClusterRecord:
    """Reserve a name and a scratch folder for a cluster that is about to start.

    The record is written without addresses: the cluster is not listed yet, but its leftovers are
    found and removed if its owner dies.

    Parameters
    ----------
    record : ClusterRecord
        A record without addresses and scratch folder.
    parent : str, optional
        Parent of the scratch folder; the temporary directory by default.

    Returns
    -------
    ClusterRecord
        The record with its scratch folder.

    Raises
    ------
    FileExistsError
        If a cluster of that name runs or starts.
    OSError
        If a folder cannot be created.
    """
    if parent is not None and not _is_folder_path(parent):
        message = f"temporary-directory = {parent!r:.80}: expected the path of a folder, as text"
        raise NotADirectoryError(errno.ENOTDIR, message)
    read_all()
    _remove_leftovers_of_other_systems(parent)
    with _exclusive_lock():
        if any(existing.name == record.name for existing in _read_records()):
            raise FileExistsError(
                f"a cluster named {record.name!r} is already running; pass replace=True to close "
                "it first, or use another name"
            )
        while True:  # another process may remove the parent folder in between
            scratch = private_folder(parent) / record.name
            with contextlib.suppress(FileNotFoundError):
                file_locks.create_locked_folder(scratch)
                reserved = replace(record, scratch=str(scratch))
                write(reserved)
                return reserved


def _is_folder_path(parent: object) -> bool:
    """Return whether a setting can be the path of a folder: non-empty text without NUL."""
    path = os.fspath(parent) if isinstance(parent, str | os.PathLike) else b""
    return isinstance(path, str) and path != "" and "\0" not in path


def process_folder() -> Path:
    """Create and return the folder for files that all clusters of this process share."""
    while True:  # another process may remove the parent folder in between
        # In the temporary directory, because its path is short and the paths of sockets must be.
        folder = private_folder() / f"_p{os.getpid()}"
        with contextlib.suppress(FileNotFoundError):
            file_locks.create_locked_folder(folder)
            return folder


def remove_process_folder(pid: int | None = None) -> None:
    """Remove the folder of :func:`process_folder`, by default that of this process."""
    for parent in private_folders():
        folder = parent / f"_p{os.getpid() if pid is None else pid}"
        file_locks.release_locks(folder)
        shutil.rmtree(folder, ignore_errors=True)
        remove_empty(parent)


def write(record: ClusterRecord) -> None:
    """Write a record to its file atomically."""
    file = _record_path(record.name)
    fields = asdict(record)
    if not record.min_workers:
        del fields["min_workers"]  # versions without this field can read the record
    draft = write_draft(file, json.dumps(fields))
    file_locks.share_lock(draft, file)  # before others see it
    draft.replace(file)
    job_dashboards.write_dashboard(record.name, record.dashboard)


def remove(name: str, scratch: str) -> None:
    """Remove the record of a cluster, its scratch folder, and parent folders that are empty."""
    # Before the record, because without it another cluster of that name may create the folder.
    file_locks.release_locks(Path(scratch))
    shutil.rmtree(scratch, ignore_errors=True)
    for folder in record_folders():
        file_locks.release_locks(folder / f"{name}.json")
        (folder / f"{name}.json").unlink(missing_ok=True)
    job_dashboards.remove_dashboard(name)
    for folder in {*record_folders(), *private_folders(), Path(scratch).parent}:
        remove_empty(folder)


def _record_path(name: str) -> Path:
    """Return the file of a cluster's record, or the path for it if there is none."""
    files = [folder / f"{name}.json" for folder in record_folders()]
    existing = [file for file in files if file.exists()]
    return existing[0] if existing else record_folder() / f"{name}.json"


def read_all(starting: bool = False) -> list[ClusterRecord]:
    """Return the records of running clusters, and remove the files of dead ones.

    They are in the order in which their owning processes started.

    Parameters
    ----------
    starting : bool
        Whether to include clusters that are still starting.
    """
    every = _read_records()
    for record in every:
        if not record.is_alive():
            _remove_dead(record)
    temporary_folders.remove_leftovers()
    _remove_leftovers_of_other_systems(None)
    for draft in _find_files("*.[0-9]*"):  # a draft may contain a key pair
        if draft.suffix[1:].isdecimal() and not psutil.pid_exists(int(draft.suffix[1:])):
            draft.unlink(missing_ok=True)
    for folder in {*record_folders(), *private_folders()}:
        remove_empty(folder)
    running = [record for record in every if (record.scheduler or starting) and record.is_alive()]
    return sorted(running, key=lambda record: record.started)


def _remove_leftovers_of_other_systems(parent: str | None) -> None:
    """Remove files that ended processes of other containers, or of an earlier boot, have left."""
    for folder in folders_of_other_systems(parent):
        for entry in find_in(folder, "*"):
            with contextlib.suppress(OSError):  # removed meanwhile
                _remove_if_abandoned(entry)
        remove_empty(folder)


def _remove_if_abandoned(entry: Path) -> None:
    """Remove a folder or a record with its scratch folder if it has no lock, or an old draft."""
    if entry.is_dir():
        temporary_folders.remove_if_abandoned(entry)
    elif entry.suffix == ".json":
        with file_locks.lock_if_abandoned(entry) as is_abandoned:
            record = _read_record(entry) if is_abandoned else None
            if record is not None and record.scratch:
                with contextlib.suppress(FileNotFoundError):
                    _remove_if_abandoned(Path(record.scratch))
            if is_abandoned:
                entry.unlink(missing_ok=True)
    elif time.time() - entry.stat().st_mtime > _ABANDONED:
        entry.unlink(missing_ok=True)


def _remove_dead(record: ClusterRecord) -> None:
    """Remove a dead cluster's record and folder, unless another cluster has its name now."""
    with _exclusive_lock():
        current = _read_record(_record_path(record.name))
        if current is not None and (current.pid, current.started) == (record.pid, record.started):
            remove(record.name, record.scratch)


@contextlib.contextmanager
def _exclusive_lock() -> Iterator[None]:
    """Hold the lock for reserving a name and for removing the record of a dead cluster.

    An owner that removes its own record does not take it. Continues without the lock where locks
    do not work, and after :data:`LOCK_TIMEOUT_SECONDS`, because the process that holds it may be
    stopped.
    """
    deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
    descriptor = None if sys.platform == "win32" else _lock_folder(deadline)
    try:
        yield
    finally:
        if descriptor is not None and sys.platform != "win32":
            # Unlock explicitly: a process forked meanwhile also has the descriptor open.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def _lock_folder(deadline: float) -> int | None:
    """Open and lock the folder of the records; None if that fails before the deadline."""
    while time.monotonic() < deadline:
        folder = record_folder()
        with contextlib.suppress(FileNotFoundError):  # removed with its last cluster
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass
            except OSError:  # network file systems do not lock folders
                os.close(descriptor)
                return None
            else:
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(descriptor), folder.stat()):
                        return descriptor
            os.close(descriptor)
        time.sleep(0.005)
    return None


def _read_record(file: Path) -> ClusterRecord | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        return ClusterRecord(**json.loads(file.read_text()))
    return None


def _read_records() -> list[ClusterRecord]:
    """Return all records, also of starting and dead clusters."""
    return [record for file in _find_files("*.json") if (record := _read_record(file)) is not None]


def _find_files(pattern: str) -> list[Path]:
    return [file for folder in record_folders() for file in find_in(folder, pattern)]
