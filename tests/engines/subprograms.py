"""Programs with a local cluster, in a session of their own: watched from outside."""

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
#: What most of the time of a start is, and none of these tests needs.
FEW_IMPORTS = {"DASK_HYPERPLANE__ENGINES__LOCAL__PRELOAD": "[]"}
#: Seconds for what takes a fraction of one on a machine at rest.
SOON = 120.0


def dead(process: psutil.Process) -> bool:
    """Whether a process has ended, reaped or not: its parent may be no good at that."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def wait_until(condition: Callable[[], object], seconds: float) -> float:
    """Wait until a condition holds, or fail; the seconds it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"not within {seconds} s"
        time.sleep(0.02)
    return time.monotonic() - began


class Program:
    """A Python program in a session of its own.

    Parameters
    ----------
    text : str
        The program; it is a script without ``if __name__ == "__main__"``.
    place : Path
        Its temporary directory.
    few_imports : bool
        Whether its workers load no more than Dask itself does.
    start : str
        What it does first.
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
        """Wait for a line of output that starts so."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(start):
                return line.removeprefix(start).strip()
        raise AssertionError(f"no line {start!r}; stderr:\n{self.finish()[1]}")

    def go_on(self) -> None:
        """Give it a line of input."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def finish(self, timeout: float = 240) -> tuple[str, str]:
        """Wait for the end; what it wrote to both streams, without what is of Dask's own timing."""
        out, err = self.process.communicate(timeout=timeout)
        return out, without_notices(err)

    def family(self) -> list[psutil.Process]:
        """The processes of its session that are there now, beside itself."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, ProcessLookupError):
                if process.pid != self.process.pid and os.getsid(process.pid) == self.process.pid:
                    found.append(process)
        return [process for process in found if not dead(process)]


Run = Callable[..., Program]


def only_the_tracker(program: Program) -> bool:
    """Whether a program has no process but Python's own helper for shared memory."""
    left = []
    for process in program.family():
        with suppress(psutil.Error):  # it has ended since
            left.append(" ".join(process.cmdline()))
    return [command for command in left if "resource_tracker" not in command] == []


def workers_of(program: Program) -> list[psutil.Process]:
    pids = [int(pid) for pid in program.line("workers").split()]
    return [psutil.Process(pid) for pid in pids]


SAY_WORKERS = "print('workers', *client.run(os.getpid).values(), flush=True)\n"
