"""Limit the memory of several processes together, with a control group of Linux."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

#: Seconds in which the kernel ends killed processes, whose group can then be removed.
_REMOVE_SECONDS = 10.0
_POLL_SECONDS = 0.02
#: Moves the shell, and thus its process, to the group whose file is the argument.
_JOIN = 'echo 0 > "$0"'
_NAMES = ("memory.max", "memory.limit_in_bytes")
#: Limits of memory and swap together (version 1), and of swap alone (version 2).
_SWAP_V1, _SWAP_V2 = "memory.memsw.limit_in_bytes", "memory.swap.max"


class MemoryGroup:
    """A control group whose processes together have a limit of memory.

    Parameters
    ----------
    folder : Path
        The folder of the group, which exists.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._is_closed = False

    @property
    def procs(self) -> Path:
        """The file into which a process writes ``0`` to move to the group."""
        return self._folder / "cgroup.procs"

    def has_killed(self) -> bool:
        """Return whether the kernel has killed a process because the memory was used up."""
        for name in ("memory.events", "memory.oom_control"):
            if found := re.search(r"^oom_kill (\d+)$", _read(self._folder / name), re.MULTILINE):
                return int(found[1]) > 0
        return False

    def peak(self) -> int | None:
        """Return the most bytes that were used at once; None if the kernel does not count them."""
        for name in ("memory.peak", "memory.max_usage_in_bytes"):
            if (text := _read(self._folder / name).strip()).isdecimal():
                return int(text)
        return None

    def kill(self) -> bool:
        """Kill all processes of the group; return whether there were any."""
        members = [int(line) for line in _read(self.procs).split() if line.isdecimal()]
        for pid in members:
            if pid > 0:  # 0 is a process of another namespace
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        return bool(members)

    def close(self) -> None:
        """Kill what still runs in the group, and remove it."""
        if self._is_closed:
            return
        self._is_closed = True
        deadline = time.monotonic() + _REMOVE_SECONDS
        while True:
            self.kill()
            try:
                self._folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:  # busy
                if time.monotonic() > deadline:
                    return
                time.sleep(_POLL_SECONDS)
            else:
                return


def create_memory_group(limit: int, root: Path = Path("/")) -> MemoryGroup | None:
    """Create a control group with a limit in bytes; return None where this process may not.

    ``root`` is the root of the file system with ``proc`` and ``sys``. Version 2 needs a group
    around this process that passes the control of memory on and belongs to its user.
    """
    for parent in _parents(root):
        folder = parent / f"hyperplane-{os.getpid()}-{uuid.uuid4().hex[:12]}"
        try:
            folder.mkdir()
        except OSError:
            continue
        group = MemoryGroup(folder)
        if _set_limit(folder, limit) and _can_join(group):
            return group
        group.close()
    return None


def _parents(root: Path) -> Iterator[Path]:
    """Yield the groups of this process in which a group with a limit may be created."""
    lines = _read(root / "proc/self/cgroup").splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        levels = [part for part in path.split("/") if part]
        if "memory" in controllers.split(","):
            # In a container the path may be the host's; its own group is then the mount point.
            top = root / "sys/fs/cgroup/memory"
            own = top.joinpath(*levels)
            yield own if own.is_dir() else top
        elif not controllers:
            top = root / "sys/fs/cgroup"
            # A group with processes cannot pass the control of memory on, so one around it must.
            for depth in range(len(levels), -1, -1):
                folder = top.joinpath(*levels[:depth])
                if "memory" in _read(folder / "cgroup.subtree_control").split():
                    yield folder


def _set_limit(folder: Path, limit: int) -> bool:
    """Set the limit of a group; return whether the kernel has accepted it."""
    for name in _NAMES:
        file = folder / name
        if file.exists():
            swap = {_SWAP_V1: limit, _SWAP_V2: 0}
            try:
                file.write_text(str(limit))
                for other, value in swap.items():
                    if (folder / other).exists():
                        (folder / other).write_text(str(value))
            except OSError:
                return False
            return True
    return False


def _can_join(group: MemoryGroup) -> bool:
    """Return whether a new process may move to the group."""
    done = subprocess.run(  # noqa: S603 - the path is an argument, not a part of the program
        ["/bin/sh", "-c", _JOIN, str(group.procs)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, ValueError):
        return ""
