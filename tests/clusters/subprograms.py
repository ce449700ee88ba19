"""Run programs with a local cluster in separate sessions, and observe their processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
from dask_notices import without_notices

START = """
import os, sys, time
import hyperplane
client, cluster = hyperplane.initialize_cluster(
    num_workers=1, nprocs=2, nthreads=1, ram_gb_per_proc=0.5, local_fit="exact"
)
"""
#: Prints how many bytes each port of the loopback address sends, or the name of the error: a server
#: of Dask begins, and HTTP answers.
READ_PORTS = """
import json, socket, sys
def read(port):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(b"GET /health HTTP/1.0\\r\\n\\r\\n")
            return len(client.recv(100))
    except OSError as error:
        return type(error).__name__
print(json.dumps([read(int(port)) for port in sys.argv[1:]]))
"""
#: Skips the imports that take most of a start and that these tests do not need.
FEW_IMPORTS = {"DASK_HYPERPLANE__ENGINES__LOCAL__PRELOAD": "[]"}
#: Seconds for what takes a fraction of a second on an idle machine.
SOON = 120.0


def dead(process: psutil.Process) -> bool:
    """Return whether a process has ended, also as a zombie that its parent did not reap."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def wait_until(condition: Callable[[], object], seconds: float) -> float:
    """Wait until a condition holds, or fail; return the seconds it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"not within {seconds} s"
        time.sleep(0.02)
    return time.monotonic() - began


class Program:
    """A Python program in a separate session.

    Parameters
    ----------
    text : str
        The program; it is a script without ``if __name__ == "__main__"``.
    place : Path
        Its temporary directory.
    few_imports : bool
        Whether its workers import only what Dask imports.
    start : str
        Code that it runs first.
    """

    def __init__(
        self, text: str, place: Path, few_imports: bool = True, start: str = START
    ) -> None:
        handle, script = tempfile.mkstemp(suffix=".py", dir=place.parent)
        with os.fdopen(handle, "w") as file:
            file.write(start + textwrap.dedent(text))
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error::ResourceWarning", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(place), **(FEW_IMPORTS if few_imports else {})},
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def line(self, start: str) -> str:
        """Wait for a line of output with a prefix."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(start):
                return line.removeprefix(start).strip()
        raise AssertionError(f"no line {start!r}; stderr:\n{self.finish()[1]}")

    def go_on(self) -> None:
        """Write a line to its input."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def finish(self, timeout: float = 240) -> tuple[str, str]:
        """Wait for its end; return both streams without messages that depend on Dask's timing."""
        out, err = self.process.communicate(timeout=timeout)
        return out, without_notices(err)

    def family(self) -> list[psutil.Process]:
        """Return the other running processes of its session."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, ProcessLookupError):
                if process.pid != self.process.pid and os.getsid(process.pid) == self.process.pid:
                    found.append(process)
        return [process for process in found if not dead(process)]


Run = Callable[..., Program]


def only_the_tracker(program: Program) -> bool:
    """Return whether a program has no process but Python's resource tracker."""
    left = []
    for process in program.family():
        with suppress(psutil.Error):  # it has ended meanwhile
            left.append(" ".join(process.cmdline()))
    return [command for command in left if "resource_tracker" not in command] == []


def workers_of(program: Program) -> list[psutil.Process]:
    pids = [int(pid) for pid in program.line("workers").split()]
    return [psutil.Process(pid) for pid in pids]


SAY_WORKERS = "print('workers', *client.run(os.getpid).values(), flush=True)\n"
