"""Processes on hosts that end with their ssh connection, also if the starting program is killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, cast

import asyncssh

from hyperplane.platforms.ssh.host_program import END_LINE
from hyperplane.platforms.ssh.hosts import SshConnections

#: Number of last lines of a process's output that are kept.
LOG_LINES = 40
#: Characters per read.
_READ_CHARACTERS = 65_536
#: Seconds that a process may take to end after its input was closed.
END_TIMEOUT_SECONDS = 20.0
#: Seconds to wait for the exit status of a process that has closed its output.
_EXIT_STATUS_SECONDS = 2.0
#: Exit status of a shell if it does not find a program.
_NOT_FOUND = 127
#: Runs a program in a separate process group, and ends the group when standard input is closed.
_END_WITH_INPUT = """\
end_group() {
  # The group is there as soon as setsid runs.
  until kill -s TERM -- "-$program"; do kill -s 0 "$program" || return; sleep 0.1; done
  tries=0
  while [ "$tries" -lt 50 ] && kill -s 0 -- "-$program"; do sleep 0.1; tries=$((tries + 1)); done
  kill -s KILL -- "-$program"
}
exec 3<&0
setsid "$@" </dev/null 3<&- &
program=$!
(while read -r line; do :; done; end_group) <&3 3<&- >/dev/null 2>&1 &
watcher=$!
wait "$program"
status=$?
kill "$watcher" 2>/dev/null
end_group >/dev/null 2>&1
exit "$status"
"""


def wrap_command(argv: Sequence[str]) -> list[str]:
    """Return a command that runs a program, and ends it when standard input is closed.

    The program's process group gets SIGTERM, and SIGKILL five seconds later. The standard input of
    the program is empty.
    """
    return ["sh", "-c", _END_WITH_INPUT, "sh", *argv]


def explain_python_failure(program: str, output: str, exit_code: int | None, key: str) -> str:
    """Return why a Python program did not start, with advice; empty if that is unknown.

    Parameters
    ----------
    program : str
        Path of Python on the host.
    output : str
        Its output.
    exit_code : int or None
        Its exit code, if it has ended.
    key : str
        Key of the setting with the path.
    """
    if "No module named" in output:
        name = output.rpartition("No module named")[2].split()[0].strip("'\")(")
        return (
            f"{program} on the host has no {name.partition('.')[0]}; install the same "
            f"packages as on this machine, or set {key}"
        )
    if exit_code == _NOT_FOUND:
        return f"there is no {program}; set {key} to the path of Python on the hosts"
    return ""


class HostProcess:
    """A process on a host that ends with its ssh connection.

    Parameters
    ----------
    connections : SshConnections
        Connections to the hosts.
    host : str
        The host that it runs on.
    argv : sequence of str
        Program and arguments, which other users of the host can read. The program must end when its
        standard input is closed. A Python program that uses
        :mod:`hyperplane.platforms.ssh.host_program` does; for others, :func:`wrap_command`
        returns a command that does.
    number : int
        Number of the connection to the host; servers limit the processes of a connection.
    """

    def __init__(
        self, connections: SshConnections, host: str, argv: Sequence[str], number: int = 0
    ) -> None:
        self.host, self.argv, self._number = host, list(argv), number
        #: The last lines of the output.
        self.log: deque[str] = deque(maxlen=LOG_LINES)
        #: Set when the process has ended or its connection is lost.
        self.ended = asyncio.Event()
        self._connections = connections
        self._process: asyncssh.SSHClientProcess[str] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._reading: list[asyncio.Task[None]] = []

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None if it runs or its connection was lost."""
        return None if self._process is None else self._process.returncode

    async def start(self, configuration: Mapping[str, Any] | None = None) -> None:
        """Start the process, and read its output into the log.

        With a configuration, which may contain secrets, the caller must await :meth:`read_reply`
        next: see :mod:`hyperplane.platforms.ssh.host_program`.
        """
        connection = await self._connections.connection(self.host, self._number)
        self._process = process = await connection.create_process(shlex.join(self.argv))
        self._follow(process.stderr)
        self._tasks.append(asyncio.create_task(self._wait(process)))
        if configuration is None:
            self._follow(process.stdout)
        else:
            process.stdin.write(json.dumps(configuration, default=str) + "\n")

    async def read_reply(self) -> dict[str, Any]:
        """Return the reply of a process with a configuration; empty if it has ended without one."""
        process = cast("asyncssh.SSHClientProcess[str]", self._process)
        async for line in process.stdout:
            with contextlib.suppress(ValueError):
                reply = json.loads(line)
                if isinstance(reply, dict):
                    self._follow(process.stdout)
                    return reply
            self.log.append(line.rstrip())  # output of a login shell
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(process.wait_closed(), _EXIT_STATUS_SECONDS)
        return {}

    async def read_rest(self) -> list[str]:
        """Return the last lines of the output of a process that has ended."""
        if self._reading:
            await asyncio.wait(self._reading, timeout=_EXIT_STATUS_SECONDS)
        return list(self.log)

    async def end(self) -> None:
        """End the process by closing its input; otherwise it ends with the connection."""
        if self._process is not None and not self._process.is_closing():
            with contextlib.suppress(asyncssh.Error, OSError, asyncio.TimeoutError):
                self._process.stdin.write(END_LINE)
                self._process.stdin.write_eof()
                await asyncio.wait_for(self._process.wait_closed(), END_TIMEOUT_SECONDS)
        for task in (*self._tasks, *self._reading):
            task.cancel()

    def explain_failure(self) -> str:
        """Return why a Python program did not start, with advice; empty if that is unknown."""
        python = self._connections.settings.locate("python")
        return explain_python_failure(self.argv[0], "\n".join(self.log), self.exit_code, python)

    def _follow(self, stream: asyncssh.SSHReader[str]) -> None:
        self._reading.append(asyncio.create_task(self._read(stream)))

    async def _read(self, stream: asyncssh.SSHReader[str]) -> None:
        """Read a stream continuously: a process blocks when its output is not read."""
        with contextlib.suppress(asyncssh.Error, OSError):
            while text := await stream.read(_READ_CHARACTERS):
                self.log.extend(text.splitlines())

    async def _wait(self, process: asyncssh.SSHClientProcess[str]) -> None:
        with contextlib.suppress(asyncssh.Error, OSError):
            await process.wait_closed()
        self.ended.set()
