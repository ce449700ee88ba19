"""Which system the numbers of processes belong to, and when a process of it started.

Programs that run apart from the package, with next to no imports, use this file too: it imports
nothing but ``os``.
"""

from __future__ import annotations

import os


def running_system() -> str:
    """The boot and the namespace in which process numbers count; empty where that is unknown.

    Two containers, and two machines with one home, have the same numbers for other processes.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id") as boot:  # noqa: PTH123 - pathlib is slow
            return f"{boot.read().strip()}-{os.stat('/proc/self/ns/pid').st_ino}"  # noqa: PTH116
    except OSError:
        return ""


def started(pid: int) -> str:
    """When a process started, in ticks of the system; empty where that is unknown."""
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123
            return stat.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
