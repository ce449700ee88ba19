"""Helpers that the services of all engines share."""

from __future__ import annotations

import fcntl
import multiprocessing.util
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts" / "engines"
#: Folder for the files of services.
STATE = Path(os.environ.get("HYPERPLANE_ENGINES", "~/.cache/hyperplane/engines")).expanduser()
#: Maximum number of services of one kind that run at the same time.
MOST = 9


def need(what: str, there: bool) -> None:
    """Skip the test if a service cannot run; fail if it must run."""
    if there:
        return
    if os.environ.get("HYPERPLANE_REQUIRE_SERVICES") == "1":
        pytest.fail(f"{what}, and HYPERPLANE_REQUIRE_SERVICES is set")
    pytest.skip(what)


def is_empty(folder: Path) -> bool:
    """Return whether a folder is empty or absent; other processes may change it meanwhile."""
    return not any(folders or files for _, folders, files in os.walk(folder))


def until(condition: Callable[[], object], seconds: float = 120) -> None:
    """Wait until a condition holds, or fail."""
    deadline, pause = time.monotonic() + seconds, 0.05
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(pause)
        pause = min(2 * pause, 0.4)  # most conditions start programs, which is slow


def restart(client: Any) -> None:
    """Restart the workers of a Dask client, and wait until the scheduler has removed the old ones.

    ``Client.restart`` returns when the scheduler has as many workers as before. That may be before
    it learns that an old one has ended, and ``Client.run`` then fails with "Address removed".
    A new worker may have the address of an old one, as the system chooses its port.
    """
    old = worker_ids(client)
    client.restart()

    def are_new() -> bool:
        ids = worker_ids(client)
        return len(ids) >= len(old) and old.isdisjoint(ids)

    until(are_new)


def worker_ids(client: Any) -> set[str]:
    """Return the identifiers of worker processes, which no other process has."""

    def find(dask_scheduler: Any) -> set[str]:
        return {state.server_id for state in dask_scheduler.workers.values()}

    found: set[str] = client.run_on_scheduler(find)
    return found


@dataclass(frozen=True)
class Slot:
    """A number that only one running service of a kind has, and the folder for its files.

    Parameters
    ----------
    number : int
        From 0; no other running service of the kind on this machine has it.
    folder : Path
        Value of ``HYPERPLANE_ENGINES`` for the scripts in scripts/engines.
    """

    number: int
    folder: Path


@contextmanager
def slot(kind: str, clean: Callable[[Slot], None]) -> Iterator[Slot]:
    """Reserve the lowest free number of a kind of service.

    The reservation is a lock on a file, which is released when its process ends for any reason. A
    number whose lock is free and whose folder exists belongs to a killed run, so its service is
    removed first.

    Parameters
    ----------
    kind : str
        Such as ``"slurm"``.
    clean : callable
        Ends the service of a number, if there is one.
    """
    above = STATE / "tests"
    above.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as held:
        mine: Slot | None = None
        for number in range(MOST):
            found = Slot(number, above / f"{kind}-{number}")
            if mine is not None and not found.folder.exists():
                continue
            with ExitStack() as lock:
                file = lock.enter_context((above / f"{kind}-{number}.lock").open("w"))
                if not _locked(file):
                    continue
                if found.folder.exists():
                    clean(found)
                    shutil.rmtree(found.folder, ignore_errors=True)
                if mine is None:
                    mine = found
                    held.push(lock.pop_all())
        assert mine is not None, f"{MOST} test runs have a service {kind} already"
        mine.folder.mkdir(mode=0o700)
        try:
            yield mine
        finally:
            with _uninterrupted():
                clean(mine)
                shutil.rmtree(mine.folder, ignore_errors=True)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block."""
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def temporary_directory() -> Iterator[None]:
    """Make tempfile use a new directory, in child processes too, and remove it at the end.

    Its path is short, because the path of a socket has at most about a hundred characters.
    """
    # Multiprocessing keeps its directory until the process ends, so it must not be in the new one.
    multiprocessing.util.get_temp_dir()
    folder = tempfile.mkdtemp(prefix="hp-")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", folder)
        patch.setenv("TMPDIR", folder)
        yield
    shutil.rmtree(folder, ignore_errors=True)
