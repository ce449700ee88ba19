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
from typing import IO

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts" / "engines"
#: Where services keep their files.
STATE = Path(os.environ.get("HYPERPLANE_ENGINES", "~/.cache/hyperplane/engines")).expanduser()
#: Services of one kind that can run beside each other.
MOST = 9


def need(what: str, there: bool) -> None:
    """Skip where a service cannot run; fail where it must."""
    if there:
        return
    if os.environ.get("HYPERPLANE_REQUIRE_SERVICES") == "1":
        pytest.fail(f"{what}, and HYPERPLANE_REQUIRE_SERVICES is set")
    pytest.skip(what)


def is_empty(folder: Path) -> bool:
    """Whether a folder is empty or absent; others may remove what is in it meanwhile."""
    return not any(folders or files for _, folders, files in os.walk(folder))


def until(condition: Callable[[], object], seconds: float = 120) -> None:
    """Wait until a condition holds, or fail."""
    deadline, pause = time.monotonic() + seconds, 0.05
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(pause)
        pause = min(2 * pause, 0.4)  # most conditions start programs, which take time themselves


@dataclass(frozen=True)
class Slot:
    """A number that one service of a kind has while it runs, and the folder for its files.

    Parameters
    ----------
    number : int
        From 0 on; no other running service of the kind on this machine has it.
    folder : Path
        For ``HYPERPLANE_ENGINES`` of the scripts in scripts/engines.
    """

    number: int
    folder: Path


@contextmanager
def slot(kind: str, clean: Callable[[Slot], None]) -> Iterator[Slot]:
    """Reserve the lowest free number of a kind of service.

    The reservation is a lock on a file, which ends with the process that holds it, however that
    process ends. So a number whose lock is free and whose folder is there belongs to a run that was
    killed: its service is removed first.

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
    """Put off Ctrl-C to the end of the block."""
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
    """Make tempfile, here and in child processes, use a new directory, and remove it after.

    Its path is short, because the path of a socket may have a hundred characters and no more.
    """
    # Multiprocessing keeps its directory for as long as the process lives: not in the new one.
    multiprocessing.util.get_temp_dir()
    folder = tempfile.mkdtemp(prefix="hp-")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", folder)
        patch.setenv("TMPDIR", folder)
        yield
    shutil.rmtree(folder, ignore_errors=True)
