"""Processes of steps: started detached, found again, and ended with certainty.

A step's process continues when its supervisor is killed, and the next supervisor must learn how it
ended. Therefore a small wrapper program records its process number and the exit code, and holds a
lock while it lives.
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

from hyperplane.platforms.local.process_identity import running_system, start_time

#: Seconds between polls of a process that is not a child.
_POLL_SECONDS = 0.1
#: Seconds after which a killed process has certainly ended.
_KILL_SECONDS = 2.0
_STEP_WRAPPER = Path(__file__).with_name("step_wrapper.py")


@dataclass(frozen=True)
class AttemptCommand:
    """Program of an attempt, and the paths of the attempt's files.

    Parameters
    ----------
    argv : sequence of str
        Program and arguments.
    environment : mapping of str to str
        The complete environment.
    folder : str
        Working folder.
    attempt_prefix : Path
        Path of the attempt's files (log, exit code and others) without their suffix.
    step_variables : mapping of str to str
        The part of the environment that the step adds to the submission's; without secrets.
    secret_variables : mapping of str to str
        Variables with secrets.
    script : Path, optional
        Script or notebook on this machine that the step runs.
    pool : str
        Pool that the step names.
    notebook : Path, optional
        Path of the executed notebook, for a notebook step.
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
        """Return the path of the attempt's file with a suffix such as ``".log"``."""
        return self.attempt_prefix.with_name(self.attempt_prefix.name + suffix)


class LocalProcess:
    """The process of one attempt, started by this supervisor or by an earlier one.

    ``child`` is the process if it is a child of this one, else None.
    """

    def __init__(
        self, command: AttemptCommand, child: subprocess.Popen[bytes] | None = None
    ) -> None:
        self.command, self._child = command, child

    @classmethod
    def start(cls, command: AttemptCommand) -> LocalProcess:
        """Start the process in a separate session.

        Raises OSError if its folder is missing or the system lacks resources.
        """
        command.attempt_prefix.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for suffix in (".exit", ".pid"):
            command.file(suffix).unlink(missing_ok=True)
        wrapper = [sys.executable, "-I", "-S", str(_STEP_WRAPPER), str(command.attempt_prefix)]
        with command.file(".lock").open("w") as lock, command.file(".log").open("ab") as log:
            fcntl.flock(lock, fcntl.LOCK_EX)
            child = subprocess.Popen(  # noqa: S603 - a list of arguments, of the user's own program
                [*wrapper, *command.argv],
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
        """Return at once: the process runs as soon as it is started."""

    async def wait(self, grace: float = 0.0) -> int | None:
        """Wait for the process and return its exit code, None if it left none.

        Remaining processes of its group are ended with SIGTERM, and with SIGKILL after ``grace``
        seconds.
        """
        if self._child is not None:
            await _wait_for_exit(self._child)
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
        """Return the exit code, None if it is not known (yet)."""
        try:
            return int(self.command.file(".exit").read_text())
        except (OSError, ValueError):
            code = self._child.returncode if self._child is not None else None
        # The wrapper exits with 128 plus the number of a signal.
        return 128 - code if code is not None and 128 < code <= 128 + signal.NSIG else code

    def end_time(self) -> float:
        """Return when a reattached process ended, by its last file; 0 while it runs."""
        if self._child is not None or (self.exit_code() is None and self._is_alive()):
            return 0.0
        for suffix in (".exit", ".log"):
            with suppress(OSError):
                return self.command.file(suffix).stat().st_mtime
        return 0.0

    async def end(self, grace: float) -> int | None:
        """End the process group with SIGTERM, and with SIGKILL after ``grace`` seconds."""
        self._signal_group(signal.SIGTERM)
        waiting = asyncio.ensure_future(self.wait(grace))
        await asyncio.wait({waiting}, timeout=grace)
        if not waiting.done():
            self._signal_group(signal.SIGKILL)
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
        """Return the id of the process group, which is not reused while a member lives."""
        if self._child is not None:
            return self._child.pid
        try:
            pid, began, system = self.command.file(".pid").read_text().split(" ")
        except (OSError, ValueError):
            return None
        if system != running_system():
            return None  # the number belongs to another process namespace
        # A process with this number but another start time is unrelated.
        return int(pid) if start_time(int(pid)) in ("", began) else None

    def _is_alive(self) -> bool:
        """Whether the wrapper holds its lock."""
        return is_locked(self.command.file(".lock"))


def is_locked(file: Path) -> bool:
    """Whether a process, also one of another container, holds the lock of a file."""
    try:
        with file.open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


async def _wait_for_exit(child: subprocess.Popen[bytes]) -> None:
    """Wait until a child exits without reaping it, so that its number is not reused."""
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
