"""The kernel's counters of processes that it ended because there was no memory left.

Processes without this package receive this module by value.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path

_MOUNT = Path("/sys/fs/cgroup")
_MACHINE = Path("/proc/vmstat")
#: Seconds after which the counters are read again; to read them takes nearly 1 ms.
_INTERVAL = 1.0


def find_group_files(groups: str, mount: Path = _MOUNT) -> list[Path]:
    """Return the files with the counters of a process's own control groups.

    ``groups`` is the content of ``/proc/<pid>/cgroup``. Inside a container the path may be that of
    the host, and the files are at the mount point itself. The kernel counts the end of a process
    in its own group, also if the limit is that of a group around it, where the ends of other
    processes are counted too.
    """
    found = []
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root, name = mount, "memory.events"
        elif "memory" in controllers.split(","):
            root, name = mount / "memory", "memory.oom_control"
        else:
            continue
        folder = root / path.lstrip("/")
        around = [each / name for each in (folder, *folder.parents) if each.is_relative_to(root)]
        found += [file for file in around if file.is_file()][:1]
    return found


def read_counter(text: str) -> int:
    r"""Return the number of ended processes in the text of a file with counters; 0 without it.

    Examples
    --------
    >>> read_counter("oom 3\noom_kill 2\n")
    2
    """
    found = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else 0


class OomCounters:
    """Counters of the control groups of this process, and of the whole machine."""

    def __init__(self) -> None:
        self._files: list[Path] = []
        with suppress(OSError, ValueError):  # not Linux
            self._files = find_group_files(Path("/proc/self/cgroup").read_text())
        self._read_at, self._counts = time.monotonic(), self._read()

    def refresh(self) -> None:
        """Read the counters for later comparison, at most once a second."""
        if time.monotonic() - self._read_at >= _INTERVAL:
            self._read_at, self._counts = time.monotonic(), self._read()

    def find_cause(self) -> str | None:
        """Return ``cgroup`` or ``kernel`` if a counter has grown since the last comparison."""
        before, self._counts = self._counts, self._read()
        self._read_at = time.monotonic()
        grown = {file for file, count in self._counts.items() if count > before.get(file, count)}
        if grown.intersection(self._files):
            return "cgroup"
        return "kernel" if grown else None

    def _read(self) -> dict[Path, int]:
        return {file: read_counter(_read_text(file)) for file in (*self._files, _MACHINE)}


def _read_text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
