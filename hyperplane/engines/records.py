"""A record of each cluster that a process here runs, for all processes of this user to find.

A record is one small file that only its owner can read, in a folder that only its owner can
enter. It names the owning process and when that started; a record whose process is gone is removed,
with the scratch folder of the dead cluster, by whoever reads it next.
"""

from __future__ import annotations

import contextlib
import errno
import getpass
import json
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

if sys.platform != "win32":
    import fcntl

#: How often a folder is made that others remove.
_TIMES = 1000
#: Seconds to wait for somebody else's look at the list.
PATIENCE = 5.0


@dataclass(frozen=True)
class Record:
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
        When that process started, in seconds since 1970.
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

    def alive(self) -> bool:
        """Whether the owning process is still there."""
        try:
            owner = psutil.Process(self.pid)
            same = abs(owner.create_time() - self.started) < 1
            return same and owner.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


def own_start() -> float:
    """When this process started."""
    return psutil.Process().create_time()


def private_folder(parent: str | None = None) -> Path:
    """The folder of this user in a temporary directory, closed to everybody else.

    Raises
    ------
    PermissionError
        When somebody else has put something of that name there.
    """
    user = os.getuid() if hasattr(os, "getuid") else getpass.getuser()
    folder = Path(parent or tempfile.gettempdir()) / f"hyperplane-{user}"
    found = _made(folder)
    others_write = found.st_mode & 0o022
    if hasattr(os, "getuid") and (
        not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or others_write
    ):
        raise PermissionError(
            f"{folder} belongs to somebody else or others can write to it: remove it or set TMPDIR"
        )
    if found.st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def _made(folder: Path) -> os.stat_result:
    """Make a folder that whoever closes the last cluster removes, at any moment."""
    for attempt in range(_TIMES):
        # Both ways: `exist_ok` raises, too, when what was there is gone as it looks what it was.
        try:
            folder.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            pass
        except FileNotFoundError:  # a place that takes no folders says so, too
            if attempt == _TIMES - 1:
                raise
        with contextlib.suppress(FileNotFoundError):
            return folder.lstat()
    raise FileNotFoundError(errno.ENOENT, "others remove it all the time", str(folder))


def reserve(record: Record, parent: str | None) -> Record:
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
    read_all()
    with _alone():
        if any(found.name == record.name for found in _read()):
            raise FileExistsError(f"a cluster named {record.name!r} runs already; use another name")
        while True:  # until nobody removes the folder above in between; see _made()
            with contextlib.suppress(FileNotFoundError):
                scratch = private_folder(parent) / record.name
                scratch.mkdir(mode=0o700, exist_ok=True)
                reserved = replace(record, scratch=str(scratch))
                write(reserved)
                return reserved


def process_folder() -> Path:
    """A folder for files of this process that serve all its clusters."""
    folder = private_folder() / f"_p{os.getpid()}"
    _made(folder)
    return folder


def write(record: Record) -> None:
    """Publish a record; a reader sees all of it or nothing."""
    file = private_folder() / f"{record.name}.json"
    draft = file.with_suffix(f".{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
        json.dump(asdict(record), opened)
    draft.replace(file)


def remove(name: str, scratch: str) -> None:
    """Take a cluster out of the list and remove its scratch folder and empty parents."""
    (private_folder() / f"{name}.json").unlink(missing_ok=True)
    shutil.rmtree(scratch, ignore_errors=True)
    for folder in {private_folder(), Path(scratch).parent}:
        with contextlib.suppress(OSError):  # other clusters are in there
            folder.rmdir()


def read_all(starting: bool = False) -> list[Record]:
    """The clusters that run now, oldest first; what dead ones left is removed.

    Parameters
    ----------
    starting : bool
        Whether to include those that are still starting.
    """
    found = _read()
    for record in found:
        if not record.alive():
            _remove_dead(record)
    for folder in _inside("*"):
        # No cluster's name begins with a line below.
        owner = re.fullmatch(r"_p([0-9]+)", folder.name)
        if owner and not psutil.pid_exists(int(owner[1])):
            shutil.rmtree(folder, ignore_errors=True)
    for draft in _inside("*.[0-9]*"):  # with a key pair in it, perhaps
        if draft.suffix[1:].isdecimal() and not psutil.pid_exists(int(draft.suffix[1:])):
            draft.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # there are clusters in it
        private_folder().rmdir()
    running = [record for record in found if (record.scheduler or starting) and record.alive()]
    return sorted(running, key=lambda record: record.started)


def _remove_dead(record: Record) -> None:
    """Remove a dead cluster's record and folder, unless another has taken its name since."""
    with _alone():
        now = _record_in(private_folder() / f"{record.name}.json")
        if now is not None and (now.pid, now.started) == (record.pid, record.started):
            remove(record.name, record.scratch)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Nobody else takes a name or removes what is dead meanwhile, where locks are to be had.

    Who holds the lock and was stopped keeps nobody waiting for long: then it goes without.
    """
    number = None if sys.platform == "win32" else _locked(time.monotonic() + PATIENCE)
    try:
        yield
    finally:
        if number is not None and sys.platform != "win32":
            # Not by closing alone: a process forked meanwhile has it open, too.
            fcntl.flock(number, fcntl.LOCK_UN)
            os.close(number)


def _locked(deadline: float) -> int | None:
    """The folder, open and locked; None when that cannot be had in time."""
    while time.monotonic() < deadline:
        folder = private_folder()
        with contextlib.suppress(FileNotFoundError):  # removed with its last cluster
            number = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass
            except OSError:  # network file systems lock no folders
                os.close(number)
                return None
            else:
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(number), folder.stat()):
                        return number
            os.close(number)
        time.sleep(0.005)
    return None


def _record_in(file: Path) -> Record | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Record(**json.loads(file.read_text()))
    return None


def _read() -> list[Record]:
    """All records, of clusters that start, run or died."""
    return [record for file in _inside("*.json") if (record := _record_in(file)) is not None]


def _inside(pattern: str) -> list[Path]:
    try:
        return list(private_folder().glob(pattern))
    except FileNotFoundError:  # removed meanwhile, so there is nothing in it
        return []
