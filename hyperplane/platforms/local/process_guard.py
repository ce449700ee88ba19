"""End all processes of a run, also when the process that started them is killed.

``python process_guard.py RUN PARENT`` waits until the process PARENT ends, and then ends the run.
It runs in a separate session, so that neither Ctrl-C nor the end of the terminal ends it. It
imports nothing of this package, because it is run by its path.

The processes of a run are found by an environment variable, which also processes have that left
their process group or whose parent has ended, and as descendants of the first processes.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable

import psutil

#: Variable with the ID of the run, in the environment of all its processes. A process without it
#: whose parents have ended outlives the run.
RUN_VARIABLE = "HYPERPLANE_TRAINING_RUN"
#: Seconds between SIGTERM and SIGKILL.
END_SECONDS = 5.0
_POLL_SECONDS = 0.05
_KILL_SECONDS = 5.0
_PARENT_POLL_SECONDS = 1.0
_GONE = (psutil.Error, OSError)


def start_guard(run: str) -> subprocess.Popen[bytes]:
    """Start the guard of a run as a child of this process; it ends the run when this one ends."""
    return subprocess.Popen(  # noqa: S603 - a list of arguments, and no shell
        [sys.executable, __file__, run, str(os.getpid())],
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def add_process(guard: subprocess.Popen[bytes], pid: int) -> None:
    """Pass the ID of a new process of the run to its guard."""
    assert guard.stdin is not None  # noqa: S101 - for mypy
    with contextlib.suppress(OSError):
        guard.stdin.write(f"{pid}\n".encode())
        guard.stdin.flush()


def end_run(run: str, roots: Iterable[psutil.Process], grace: float = END_SECONDS) -> None:
    """End the processes of a run with SIGTERM, and with SIGKILL after ``grace`` seconds.

    ``roots`` are its first processes, whose descendants are ended, too.
    """
    roots = list(roots)
    ending = find_processes(run, roots)
    _send(ending, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while any(map(_is_alive, ending)) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    # Search again: processes may have started others meanwhile.
    deadline = time.monotonic() + _KILL_SECONDS
    while time.monotonic() < deadline:
        ending |= find_processes(run, [*roots, *ending])
        if not any(map(_is_alive, ending)):
            return
        _send(ending, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def find_processes(run: str, roots: Iterable[psutil.Process]) -> set[psutil.Process]:
    """Return the living processes of a run: ``roots``, all with its variable, and descendants."""
    members = {process for process in roots if _is_alive(process)}
    for process in psutil.process_iter():
        with contextlib.suppress(*_GONE):
            if process.environ().get(RUN_VARIABLE) == run:
                members.add(process)
    for process in list(members):
        with contextlib.suppress(*_GONE):
            members.update(process.children(recursive=True))
    return {process for process in members if process.pid != os.getpid() and _is_alive(process)}


def _is_alive(process: psutil.Process) -> bool:
    # A zombie is reaped by its parent, not here: subprocess would lose its exit code.
    with contextlib.suppress(*_GONE):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        if _is_alive(process):
            with contextlib.suppress(*_GONE):
                process.send_signal(number)


def main() -> None:
    """Wait for the end of the parent, and then end its run."""
    run, parent = sys.argv[1], int(sys.argv[2])
    roots: list[psutil.Process] = []
    received = b""
    # A process that was forked from the parent may keep the pipe open, hence the second condition.
    while os.getppid() == parent:
        if not select.select([0], [], [], _PARENT_POLL_SECONDS)[0]:
            continue
        chunk = os.read(0, 4096)
        if not chunk:
            break
        *lines, received = (received + chunk).split(b"\n")
        for line in lines:
            with contextlib.suppress(psutil.Error):
                roots.append(psutil.Process(int(line)))
    end_run(run, roots)


if __name__ == "__main__":
    main()
