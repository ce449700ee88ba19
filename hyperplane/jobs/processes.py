"""Processes of steps: started apart from whoever watches them, found again, and ended surely.

A step's process must go on when its watcher is killed, and the next watcher must know how it ended.
So a few lines of shell around it write down its number and its exit code, and it holds a lock for
as long as it lives: whoever can take the lock knows that it is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Seconds between looks at a process that is not our child.
_LOOK = 0.1
# It gets the program and its arguments as they are; no text of a user is ever read by a shell.
# The shell outlives a polite signal, so that it can write down how the program took it.
_AROUND = (
    'f=$1; shift; trap : TERM INT HUP; echo "$$" >"$f.pid"; "$@"; c=$?; '
    'echo "$c" >"$f.draft" && mv "$f.draft" "$f.exit"; exit "$c"'
)


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
    """

    argv: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    traces: Path

    def file(self, suffix: str) -> Path:
        """One of the files."""
        return self.traces.with_name(self.traces.name + suffix)


class Process:
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
    def start(cls, command: Command) -> Process:
        """Start it, in a session of its own.

        Raises
        ------
        OSError
            When its folder is not there.
        """
        command.traces.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with command.file(".lock").open("w") as lock, command.file(".log").open("ab") as log:
            fcntl.flock(lock, fcntl.LOCK_EX)
            child = subprocess.Popen(  # noqa: S603 - a list of arguments, of the user's own program
                ["/bin/sh", "-c", _AROUND, "hyperplane-step", str(command.traces), *command.argv],
                env=dict(command.environment),
                cwd=command.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[lock.fileno()],
                start_new_session=True,
            )
        return cls(command, child)

    async def wait(self) -> int | None:
        """Its exit code, once it is gone; None when it left none."""
        if self._child is None:
            while self._lives():
                await asyncio.sleep(_LOOK)
        else:
            await _gone(self._child)
        self._kill(signal.SIGKILL)  # what it left in the background
        if self._child is not None:
            self._child.wait()
        return self.exit_code()

    def exit_code(self) -> int | None:
        """What it wrote down at its end."""
        try:
            code = int(self.command.file(".exit").read_text())
        except (OSError, ValueError):
            return None
        # A shell adds 128 to the number of the signal that ended a program.
        return 128 - code if 128 < code <= 128 + signal.NSIG else code

    async def end(self, grace: float) -> None:
        """End it with all that it has started: politely, and after a while surely."""
        self._kill(signal.SIGTERM)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.wait(), grace)
            return
        self._kill(signal.SIGKILL)
        await self.wait()

    def _kill(self, number: signal.Signals) -> None:
        pid = self._child.pid if self._child is not None else self._told_pid()
        # Of a child that has not been waited for nobody else has the number, and of another one
        # nobody has while it holds the lock.
        if pid and (self._child is None or self._child.returncode is None):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, number)

    def _told_pid(self) -> int | None:
        if not self._lives():
            return None
        with contextlib.suppress(OSError, ValueError):
            return int(self.command.file(".pid").read_text())
        return None

    def _lives(self) -> bool:
        """Whether somebody holds its lock."""
        try:
            with self.command.file(".lock").open("r") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        return False


async def _gone(child: subprocess.Popen[bytes]) -> None:
    """Wait until a child is gone, but leave it to be waited for: its number stays its own."""
    if not hasattr(os, "pidfd_open"):
        while os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            await asyncio.sleep(_LOOK)
        return
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    number = os.pidfd_open(child.pid)
    try:
        loop.add_reader(number, gone.set)
        await gone.wait()
    finally:
        loop.remove_reader(number)
        os.close(number)
