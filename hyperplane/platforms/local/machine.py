"""Cores, memory and disk space that this process may use.

Control groups are nested, and a limit can be set at any level above the process, so all levels are
read, of versions 1 and 2. The top level alone showed 24 GB inside a group of 400 MB.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil

from hyperplane.core.units import format_bytes

ROOT = Path("/")


def cores(root: Path = ROOT) -> int:
    """Return the number of whole cores that this process may use, at least one.

    Parameters
    ----------
    root : Path
        Parent of ``/proc`` and ``/sys``; tests replace it.
    """
    count = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0)
    count = count or os.cpu_count() or 1
    for group in _control_groups("cpu", root):
        quota = _cpu_quota(group)
        if quota is not None:
            count = min(count, quota)
    return max(1, int(count))


def free_ram(root: Path = ROOT) -> int:
    """Return the bytes of memory that this process and its children may still allocate."""
    free = psutil.virtual_memory().available
    for group in _control_groups("memory", root):
        limit, used = _memory_limit(group)
        if limit is not None:
            free = min(free, max(0, limit - used))
    return int(free)


def total_ram(root: Path = ROOT) -> int:
    """Return the bytes of memory that this process and its children may have, used or not."""
    total = psutil.virtual_memory().total
    for group in _control_groups("memory", root):
        limit, _ = _memory_limit(group)
        if limit is not None:
            total = min(total, limit)
    return int(total)


def find_memory_fault(ram: int) -> str:
    """Return why this machine is too small for processes of ``ram`` bytes together, or ""."""
    total = psutil.virtual_memory().total
    if ram <= total:
        return ""
    return (
        f"its processes need {format_bytes(ram)} together, but the machine has "
        f"{format_bytes(total)}; request less (ram_gb_per_proc, nprocs)"
    )


def free_disk(path: str) -> int:
    """Return the free bytes on the disk that holds a folder."""
    return shutil.disk_usage(path).free


def _control_groups(controller: str, root: Path) -> Iterator[Path]:
    """Yield the folders of this process's control group and of all its ancestors."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            top = root / "sys/fs/cgroup"
        elif controller in controllers.split(","):
            top = root / "sys/fs/cgroup" / controller
        else:
            continue
        # In a container the path may be the host's, so only levels that exist here are read.
        levels = [part for part in path.split("/") if part]
        for depth in range(len(levels), -1, -1):
            folder = top.joinpath(*levels[:depth])
            if folder.is_dir():
                yield folder


def _cpu_quota(group: Path) -> float | None:
    both = _read_words(group / "cpu.max")
    if len(both) != 2:
        both = _read_words(group / "cpu.cfs_quota_us") + _read_words(group / "cpu.cfs_period_us")
    if len(both) != 2 or not both[0].isdecimal():  # "max", or -1: no limit
        return None
    return int(both[0]) / int(both[1])


def _memory_limit(group: Path) -> tuple[int | None, int]:
    """Return a group's limit, or None, and its usage without reclaimable file pages."""
    for limit_file, used_file, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit = _read_words(group / limit_file)
        if limit and limit[0].isdecimal():
            used = _read_words(group / used_file)
            stat = dict(zip(*[iter(_read_words(group / "memory.stat"))] * 2, strict=False))
            return int(limit[0]), int(used[0] if used else 0) - int(stat.get(cache, 0))
    return None, 0


def _read_words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []
