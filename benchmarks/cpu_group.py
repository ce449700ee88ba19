"""CPU seconds of a command with all of its processes, also of killed and detached ones."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

#: Where a control group is created, the file with its CPU time, and what one second is there.
_HIERARCHIES = (
    ("/sys/fs/cgroup/cpuacct", "cpuacct.usage", 1e9),
    ("/sys/fs/cgroup", "cpu.stat", 1e6),
)
_NAME = "benchmark-"


def run(command: Sequence[str]) -> tuple[subprocess.CompletedProcess[str], float | None]:
    """Run a command; return it and its CPU seconds, None if no control group can be created.

    Raylets and masters of Spark kill their processes without waiting for them, so that neither
    ``resource.getrusage`` nor the sum over running processes has their time.
    """
    for root, usage, unit in _HIERARCHIES:
        group = Path(root, f"{_NAME}{os.getpid()}")
        if not Path(root, "cgroup.procs").exists():
            continue
        with contextlib.suppress(OSError):
            group.mkdir()
            try:
                return _run_in(group, usage, unit, command)
            finally:
                _remove(group)
    return subprocess.run(command, capture_output=True, text=True, check=False), None


def read_usage() -> float:
    """Return the CPU seconds of the group of this process so far; 0 if :func:`run` made none."""
    own = Path("/proc/self/cgroup").read_text().splitlines()
    for root, usage, unit in _HIERARCHIES:
        for line in own:
            _, names, path = line.split(":", 2)
            if names in ("", Path(root).name) and Path(path).name.startswith(_NAME):
                return _read(Path(root + path), usage, unit)
    return 0.0


def _run_in(
    group: Path, usage: str, unit: float, command: Sequence[str]
) -> tuple[subprocess.CompletedProcess[str], float]:
    # The shell enters the group before it becomes the command.
    enter = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs"), *command]
    done = subprocess.run(enter, capture_output=True, text=True, check=False)
    return done, _read(group, usage, unit)


def _read(group: Path, usage: str, unit: float) -> float:
    # The number is the only word of cpuacct.usage, and the second one of cpu.stat.
    return int((group / usage).read_text().split()[:2][-1]) / unit


def _remove(group: Path) -> None:
    """Remove a group as soon as its last process has ended."""
    for _ in range(100):
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)
