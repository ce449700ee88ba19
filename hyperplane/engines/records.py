"""A record of each cluster that a process here runs, for all processes of this user to find.

A record is one small file that only its owner can read, in a folder that only its owner can
enter. It names the owning process and when that started; the next process that reads the list
removes a record whose process is gone, with the scratch folder of the dead cluster.

Containers that share these folders have the same numbers for different processes. So each running
system has folders of its own, and only locks, which the owning processes hold, say when what is in
another system's folders can be removed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from hyperplane.engines import job_clusters
from hyperplane.engines.ownership import (
    drop_ownership,
    lock_if_abandoned,
    make_owned_folder,
    take_ownership,
)
from hyperplane.engines.private_folders import (
    folders_of_other_systems,
    private_folder,
    private_folders,
    record_folder,
    record_folders,
    remove_empty,
)
from hyperplane.engines.running_system import started
from hyperplane.folder_entries import find_in

if sys.platform != "win32":
    import fcntl

#: Seconds to wait for somebody else's look at the list.
PATIENCE = 5.0
#: Seconds after which the draft of a record is abandoned: it is written within milliseconds.
_ABANDONED = 60.0
#: Seconds, thirty years: greater numbers count from 1970, as this package wrote them before.
_LONGEST_BOOT = 1e9


@dataclass(frozen=True)
class ClusterRecord:
    """A running cluster.

    Parameters
    ----------
    name, engine : str
        Name of the cluster and of the engine that runs it.
    scheduler, dashboard : str
        Addresses; empty while the cluster starts.
    pid : int
        The owning process.
    started : float
        When that process started, as :func:`own_start_time` says it.
    workers, threads : int
        Worker processes and threads that were started.
    ram_gb : float
        Memory of all worker processes together.
    scratch : str
        Folder that the workers spill to.
    client : dict
        Settings of Dask for clients of the cluster.
    direct_to_workers : bool
        Whether clients ask the workers for results, and not the scheduler.
    security : dict
        The key pair of a cluster with TLS, as texts: a secret, in a file that only the owner of
        the cluster can read.
    job : str
        The pipeline job whose step started it; empty in a session.
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

    def is_alive(self) -> bool:
        """Whether the owning process is still there."""
        try:
            owner = psutil.Process(self.pid)
            begun = owner.create_time() if self.started > _LONGEST_BOOT else _start_time(self.pid)
            return abs(begun - self.started) < 1 and owner.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


def own_start_time() -> float:
    """When this process started: in seconds since the boot where that is known, else since 1970.

    A time of day would change for processes that run when the clock is set, and the clusters of
    all of them be removed as those of dead processes.
    """
    return _start_time(os.getpid())


def _start_time(pid: int) -> float:
    ticks = started(pid)
    return int(ticks) / os.sysconf("SC_CLK_TCK") if ticks else psutil.Process(pid).create_time()


def reserve(record: ClusterRecord, parent: str | None) -> ClusterRecord:
    """Take a name and a scratch folder for a cluster that is about to start.

    Parameters
    ----------
    record : Record
        Without addresses: the cluster is not listed yet, but what it leaves when its owner dies
        will be found.
    parent : str, optional
        The disk to spill to; the temporary directory by default.

    Returns
    -------
    Record
        With its scratch folder.

    Raises
    ------
    FileExistsError
        When a cluster of that name runs.
    """
    if parent is not None and not _is_folder_path(parent):
        wrong = f"temporary-directory = {parent!r:.80}: a folder is expected, as text"
        raise NotADirectoryError(errno.ENOTDIR, wrong)
    read_all()
    _remove_leftovers_of_other_systems(parent)
    with _exclusive():
        if any(found.name == record.name for found in _read_records()):
            raise FileExistsError(f"a cluster named {record.name!r} runs already; use another name")
        while True:  # another process may remove the folder above in between
            scratch = private_folder(parent) / record.name
            with contextlib.suppress(FileNotFoundError):
                make_owned_folder(scratch)
                reserved = replace(record, scratch=str(scratch))
                write(reserved)
                return reserved


def _is_folder_path(parent: object) -> bool:
    """Whether a setting could be the path of a folder; the system takes no zero byte in one."""
    path = os.fspath(parent) if isinstance(parent, str | os.PathLike) else b""
    return isinstance(path, str) and path != "" and "\0" not in path


def process_folder() -> Path:
    """A folder for files of this process that serve all its clusters."""
    while True:  # another process may remove the folder above in between
        # In the temporary directory, whose path is short: there are sockets in it.
        folder = private_folder() / f"_p{os.getpid()}"
        with contextlib.suppress(FileNotFoundError):
            make_owned_folder(folder)
            return folder


def remove_process_folder() -> None:
    """Remove the folder for files of this process."""
    for above in private_folders():
        folder = above / f"_p{os.getpid()}"
        drop_ownership(folder)
        shutil.rmtree(folder, ignore_errors=True)
        remove_empty(above)


def write(record: ClusterRecord) -> None:
    """Publish a record; a reader sees all of it or nothing."""
    file = _file_of(record.name)
    draft = file.with_suffix(f".{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
        json.dump(asdict(record), opened)
    take_ownership(draft, file)  # before others see it
    draft.replace(file)
    job_clusters.write_dashboard(record.name, record.dashboard)


def remove(name: str, scratch: str) -> None:
    """Take a cluster out of the list and remove its scratch folder and empty parents."""
    for folder in record_folders():
        drop_ownership(folder / f"{name}.json")
        (folder / f"{name}.json").unlink(missing_ok=True)
    job_clusters.remove_dashboard(name)
    drop_ownership(Path(scratch))
    shutil.rmtree(scratch, ignore_errors=True)
    for folder in {*record_folders(), *private_folders(), Path(scratch).parent}:
        remove_empty(folder)


def _file_of(name: str) -> Path:
    """The file of a cluster's record: the one that is there, or the one to make."""
    files = [folder / f"{name}.json" for folder in record_folders()]
    there = [file for file in files if file.exists()]
    return there[0] if there else record_folder() / f"{name}.json"


def read_all(starting: bool = False) -> list[ClusterRecord]:
    """The clusters that run now, oldest first; what dead ones left is removed.

    Parameters
    ----------
    starting : bool
        Whether to include those that are still starting.
    """
    found = _read_records()
    for record in found:
        if not record.is_alive():
            _remove_dead(record)
    for folder in [found for above in private_folders() for found in find_in(above, "*")]:
        # No cluster's name begins with a line below.
        owner = re.fullmatch(r"_p([0-9]+)", folder.name)
        if owner and not psutil.pid_exists(int(owner[1])):
            shutil.rmtree(folder, ignore_errors=True)
    _remove_leftovers_of_other_systems(None)
    for draft in _find_files("*.[0-9]*"):  # with a key pair in it, perhaps
        if draft.suffix[1:].isdecimal() and not psutil.pid_exists(int(draft.suffix[1:])):
            draft.unlink(missing_ok=True)
    for folder in {*record_folders(), *private_folders()}:
        remove_empty(folder)
    running = [record for record in found if (record.scheduler or starting) and record.is_alive()]
    return sorted(running, key=lambda record: record.started)


def _remove_leftovers_of_other_systems(parent: str | None) -> None:
    """Remove what dead processes of other containers, or before a boot, have left."""
    for folder in folders_of_other_systems(parent):
        for entry in find_in(folder, "*"):
            with contextlib.suppress(OSError):  # removed meanwhile
                _remove_if_abandoned(entry)
        remove_empty(folder)


def _remove_if_abandoned(entry: Path) -> None:
    """Remove a folder, a record with its scratch folder or a draft that no process owns."""
    if entry.is_dir():
        with lock_if_abandoned(entry) as gone:
            if gone:
                shutil.rmtree(entry, ignore_errors=True)
    elif entry.suffix == ".json":
        with lock_if_abandoned(entry) as gone:
            record = _read_record(entry) if gone else None
            if record is not None and record.scratch:
                with contextlib.suppress(FileNotFoundError):
                    _remove_if_abandoned(Path(record.scratch))
            if gone:
                entry.unlink(missing_ok=True)
    elif time.time() - entry.stat().st_mtime > _ABANDONED:
        entry.unlink(missing_ok=True)


def _remove_dead(record: ClusterRecord) -> None:
    """Remove a dead cluster's record and folder, unless another has taken its name since."""
    with _exclusive():
        now = _read_record(_file_of(record.name))
        if now is not None and (now.pid, now.started) == (record.pid, record.started):
            remove(record.name, record.scratch)


@contextlib.contextmanager
def _exclusive() -> Iterator[None]:
    """Nobody else takes a name or removes what is dead meanwhile, where locks are to be had.

    Who holds the lock and was stopped keeps nobody waiting for long: then it goes without.
    """
    descriptor = None if sys.platform == "win32" else _lock_folder(time.monotonic() + PATIENCE)
    try:
        yield
    finally:
        if descriptor is not None and sys.platform != "win32":
            # Not by closing alone: a process forked meanwhile has it open, too.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def _lock_folder(deadline: float) -> int | None:
    """The folder, open and locked; None when that cannot be had in time."""
    while time.monotonic() < deadline:
        folder = record_folder()
        with contextlib.suppress(FileNotFoundError):  # removed with its last cluster
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass
            except OSError:  # network file systems lock no folders
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
    """All records, of clusters that start, run or died."""
    return [record for file in _find_files("*.json") if (record := _read_record(file)) is not None]


def _find_files(pattern: str) -> list[Path]:
    return [file for folder in record_folders() for file in find_in(folder, pattern)]
