"""Processes of steps: started apart from whoever watches them, found again, and ended surely.

A step's process must go on when its watcher is killed, and the next watcher must know how it ended.
So a small program around it writes down its number and its exit code, and it holds a lock for as
long as it lives: whoever can take the lock knows that it is gone.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hyperplane.engines.running_system import running_system, started

#: Seconds between looks at a process that is not our child.
_POLL_SECONDS = 0.1
#: Seconds until what was killed has surely ended.
_KILL_SECONDS = 2.0
_STEP_WRAPPER = Path(__file__).with_name("step_wrapper.py")


@dataclass(frozen=True)
class Command:
    """What to run, and where its traces are.

    Parameters
    ----------
    argv : sequence of str
        Program and arguments.
    environment : mapping of str to str
        All of it.
    folder : str
        Where it runs.
    traces : Path
        Beginning of the names of the files for the log, the exit code and so on.
    own : mapping of str to str
        What of the environment is the step's, and not of whoever submitted it; without secrets.
    hidden : mapping of str to str
        The variables with secrets.
    script : Path, optional
        The file of this machine that the step runs, if it is one.
    pool : str
        The pool that the step names.
    notebook : Path, optional
        Where the executed notebook is written, if it runs one.
    """

    argv: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    attempt_prefix: Path
    step_variables: Mapping[str, str] = field(default_factory=dict)
    secret_variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    script: Path | None = None
    pool: str = ""
    notebook: Path | None = None

    def file(self, suffix: str) -> Path:
        """One of the files."""
        return self.attempt_prefix.with_name(self.attempt_prefix.name + suffix)


class LocalProcess:
    """The process of one attempt, started by us or by somebody who was killed since.

    Parameters
    ----------
    command : Command
        What it runs.
    child : subprocess.Popen or None
        The process, if we have started it.
    """

    def __init__(self, command: Command, child: subprocess.Popen[bytes] | None = None) -> None:
        self.command, self._child = command, child

    @classmethod
    def start(cls, command: Command) -> LocalProcess:
        """Start it, in a session of its own.

        Raises
        ------
        OSError
            When its folder is not there, or the system has no room for it.
        """
        command.attempt_prefix.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for suffix in (".exit", ".pid"):
            command.file(suffix).unlink(missing_ok=True)
        around = [sys.executable, "-I", "-S", str(_STEP_WRAPPER), str(command.attempt_prefix)]
        with command.file(".lock").open("w") as lock, command.file(".log").open("ab") as log:
            fcntl.flock(lock, fcntl.LOCK_EX)
            child = subprocess.Popen(  # noqa: S603 - a list of arguments, of the user's own program
                [*around, *command.argv],
                env=dict(command.environment),
                cwd=command.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[lock.fileno()],
                start_new_session=True,
            )
        return cls(command, child)

    async def wait_until_running(self) -> None:
        """It runs since it was started."""

    async def wait(self, grace: float = 0.0) -> int | None:
        """Its exit code, once it is gone with all that it has started; None when it left none.

        What is left of its process group then is ended, politely, and after a while surely.
        """
        if self._child is not None:
            await _wait_for_exit(self._child)
            self._child.wait()
        else:
            while self._lives() and self.exit_code() is None:
                await asyncio.sleep(_POLL_SECONDS)
        deadline = time.monotonic() + grace
        self._signal(signal.SIGTERM)
        # Dead ones count as long as nobody has asked for their end, which init may not do here.
        while self._signal(0) and time.monotonic() < deadline + _KILL_SECONDS:
            if time.monotonic() > deadline:
                self._signal(signal.SIGKILL)
            await asyncio.sleep(_POLL_SECONDS)
        return self.exit_code()

    def exit_code(self) -> int | None:
        """What it ended with, so far as anybody knows."""
        try:
            return int(self.command.file(".exit").read_text())
        except (OSError, ValueError):
            code = self._child.returncode if self._child is not None else None
        # Of a program that a signal has ended, 128 more than its number.
        return 128 - code if code is not None and 128 < code <= 128 + signal.NSIG else code

    def end_time(self) -> float:
        """When one that somebody else began has ended, by its last trace; 0 while it runs."""
        if self._child is not None or (self.exit_code() is None and self._lives()):
            return 0.0
        for suffix in (".exit", ".log"):
            with suppress(OSError):
                return self.command.file(suffix).stat().st_mtime
        return 0.0

    async def end(self, grace: float) -> int | None:
        """End it with all that it has started: politely, and after a while surely."""
        self._signal(signal.SIGTERM)
        waiting = asyncio.ensure_future(self.wait(grace))
        await asyncio.wait({waiting}, timeout=grace)
        if not waiting.done():
            self._signal(signal.SIGKILL)
        return await waiting

    def _signal(self, number: int) -> bool:
        """Send a signal to all processes of its group; whether there are any."""
        pid = self._group()
        if pid is None:
            return False
        try:
            os.killpg(pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _group(self) -> int | None:
        """The number of its process group, which nobody else has while one of them lives."""
        if self._child is not None:
            return self._child.pid
        try:
            pid, began, system = self.command.file(".pid").read_text().split(" ")
        except (OSError, ValueError):
            return None
        if system != running_system():
            return None  # there it is another process, here perhaps a stranger
        # A process of that number which began at another time is a stranger.
        return int(pid) if started(int(pid)) in ("", began) else None

    def _lives(self) -> bool:
        """Whether somebody holds its lock."""
        return is_locked(self.command.file(".lock"))


def is_locked(file: Path) -> bool:
    """Whether a process holds the lock of a file; also one of another container."""
    try:
        with file.open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


async def _wait_for_exit(child: subprocess.Popen[bytes]) -> None:
    """Wait until a child is gone, but leave it to be waited for: its number stays its own."""
    if not hasattr(os, "pidfd_open"):
        while os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            await asyncio.sleep(_POLL_SECONDS)
        return
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    number = os.pidfd_open(child.pid)
    try:
        loop.add_reader(number, gone.set)
        await gone.wait()
    finally:
        loop.remove_reader(number)
        os.close(number)
