"""Identity of the running system, and the start times of its processes.

It imports only ``os``, because programs that run without the rest of this package use it, too.
"""

from __future__ import annotations

import os


def running_system() -> str:
    """Return the boot and the process namespace that process IDs belong to; empty if unknown.

    Containers, and machines that share a home, use the same IDs for different processes.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id") as boot:  # noqa: PTH123 - pathlib is slow
            return f"{boot.read().strip()}-{os.stat('/proc/self/ns/pid').st_ino}"  # noqa: PTH116
    except OSError:
        return ""


def start_time(pid: int) -> str:
    """Return the start time of a process, in clock ticks since boot; empty if unknown."""
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123
            return stat.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def is_id_reused(pid: int, began: str) -> bool:
    """Return whether a process ID now belongs to a process that started at another time.

    False if no process has the ID: a process group has the ID of its first process, and may outlive
    that process.
    """
    return start_time(pid) not in ("", began)
