"""Processes that outlive the program that started them, and that other programs can find.

If the program that started a process is killed, the next program must find the process and its exit
code. So each process has files with one prefix: its log, a lock that it holds while it runs, its
process ID and its exit code.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from hyperplane.platforms.local.file_locks import exclusive_lock, is_locked
from hyperplane.platforms.local.process_guard import RUN_VARIABLE
from hyperplane.platforms.local.process_identity import is_id_reused, running_system

#: Seconds between polls of a process that is not a child.
_POLL_SECONDS = 0.1
#: Seconds after which a killed process has certainly ended.
_KILL_SECONDS = 2.0


def start_detached(
    prefix: Path, argv: Sequence[str], environment: Mapping[str, str], folder: str
) -> subprocess.Popen[bytes]:
    """Start a process in a separate session, which holds a lock and writes a log.

    Parameters
    ----------
    prefix : Path
        Path of its files without their suffix. It appends to ``.log`` and locks ``.lock``.
    argv : sequence of str
        Program and arguments. The program must write ``.pid`` (process ID, start time and running
        system, separated by spaces), and at its end ``.exit`` (the exit code).
    environment : mapping of str to str
        The complete environment.
    folder : str
        Working folder.

    Raises
    ------
    OSError
        If the working folder is missing or the system lacks resources.
    """
    prefix.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for suffix in (".exit", ".pid"):
        _file(prefix, suffix).unlink(missing_ok=True)
    with exclusive_lock(_file(prefix, ".lock")) as lock, _file(prefix, ".log").open("ab") as log:
        return subprocess.Popen(  # noqa: S603 - a list of arguments, of the user's own program
            list(argv),
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=[lock.fileno()],
            start_new_session=True,
        )


def start_daemon(argv: Sequence[str], environment: Mapping[str, str], log: IO[bytes]) -> None:
    """Start a program in a separate session, and not as a child of this process.

    The program ignores SIGINT and SIGQUIT, because a shell starts it in the background. It outlives
    a training run in which this process runs.

    Raises
    ------
    OSError
        If the system lacks resources.
    """
    subprocess.run(  # noqa: S603 - a list of arguments
        # The shell exits at once, so that this process does not have to reap the program.
        ["/bin/sh", "-c", '"$@" &', "start-daemon", *argv],
        env={name: value for name, value in environment.items() if name != RUN_VARIABLE},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        check=True,
    )


def is_running_child(pid: int) -> bool:
    """Return whether a child of this process runs; a child that has ended is not reaped."""
    with suppress(ChildProcessError):
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    return False


class DetachedProcess:
    """A process that :func:`start_detached` has started, in this program or in another one.

    Parameters
    ----------
    prefix : Path
        Path of its files without their suffix.
    child : subprocess.Popen, optional
        The process, if it is a child of this one.
    """

    def __init__(self, prefix: Path, child: subprocess.Popen[bytes] | None = None) -> None:
        self._prefix, self._child = prefix, child

    async def wait(self, grace: float = 0.0) -> int | None:
        """Wait for the process and return its exit code; None if it is unknown.

        Remaining processes of its group are ended with SIGTERM, and with SIGKILL after ``grace``
        seconds.
        """
        if self._child is not None:
            await _wait_for_exit(self._child.pid)
            self._child.wait()
        else:
            while self._is_alive() and self.exit_code() is None:
                await asyncio.sleep(_POLL_SECONDS)
        deadline = time.monotonic() + grace
        self._signal_group(signal.SIGTERM)
        # Zombies count as alive until they are reaped; in a container, init may not do that.
        while self._signal_group(0) and time.monotonic() < deadline + _KILL_SECONDS:
            if time.monotonic() > deadline:
                self._signal_group(signal.SIGKILL)
            await asyncio.sleep(_POLL_SECONDS)
        return self.exit_code()

    def exit_code(self) -> int | None:
        """Return the exit code, negative for a signal; None if it is not known (yet)."""
        try:
            return int(_file(self._prefix, ".exit").read_text())
        except (OSError, ValueError):
            code = self._child.returncode if self._child is not None else None
        # A wrapper exits with 128 plus the number of a signal that has ended its program.
        return 128 - code if code is not None and 128 < code <= 128 + signal.NSIG else code

    def end_time(self) -> float:
        """Return when a process ended that is not a child; 0 for a child, and while it runs."""
        if self._child is not None or (self.exit_code() is None and self._is_alive()):
            return 0.0
        for suffix in (".exit", ".log"):
            with suppress(OSError):
                return _file(self._prefix, suffix).stat().st_mtime
        return 0.0

    async def end(self, grace: float) -> int | None:
        """End the process group with SIGTERM, and with SIGKILL after ``grace`` seconds."""
        self._signal_group(signal.SIGTERM)
        waiting = asyncio.ensure_future(self.wait(grace))
        await asyncio.wait({waiting}, timeout=grace)
        while not waiting.done():  # one that has just started may not have written its ID yet
            self._signal_group(signal.SIGKILL)
            await asyncio.wait({waiting}, timeout=_POLL_SECONDS)
        return await waiting

    def _signal_group(self, number: int) -> bool:
        """Send a signal to the process group; return whether the group exists."""
        pid = self._process_group()
        if pid is None:
            return False
        try:
            os.killpg(pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _process_group(self) -> int | None:
        """Return the ID of the process group, which is not reused while a member lives."""
        if self._child is not None:
            return self._child.pid
        try:
            pid, began, system = _file(self._prefix, ".pid").read_text().split(" ")
            if system != running_system():
                return None  # the ID belongs to another process namespace
            return None if is_id_reused(int(pid), began) else int(pid)
        except (OSError, ValueError):
            return None

    def _is_alive(self) -> bool:
        """Return whether the process holds its lock."""
        return is_locked(_file(self._prefix, ".lock"))


def _file(prefix: Path, suffix: str) -> Path:
    return prefix.with_name(prefix.name + suffix)


async def _wait_for_exit(pid: int) -> None:
    """Wait until a child exits without reaping it, so that its ID is not reused."""
    if not hasattr(os, "pidfd_open"):
        while is_running_child(pid):
            await asyncio.sleep(_POLL_SECONDS)
        return
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    descriptor = os.pidfd_open(pid)
    try:
        loop.add_reader(descriptor, gone.set)
        await gone.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
