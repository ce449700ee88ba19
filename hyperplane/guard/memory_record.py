"""A worker's record of what is in its memory, in a file that survives the end of its process.

The worker writes through a memory map, so that the content is in the file even after SIGKILL, and
before each task begins, so that the nanny can read it while the task holds the GIL. The nanny opens
the file while the worker runs, because Dask deletes the worker's folder with the process.

Processes without this package receive this module by value, so it imports no other module of the
package that they do not receive too.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import time
from collections.abc import Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyperplane.guard.memory_report import RunningTask

#: Name of the file in the local directory of a worker.
FILE = "hyperplane-memory-record"
#: Characters of a key that the file keeps; reports compare keys by this beginning.
KEY_LENGTH = 300
#: Start time (0: a free slot), the five sizes of a RunningTask, lengths of prefix and key, both.
_SLOT = "=dQQQQQHH404s"
#: Memory now, memory before the first task, bytes on disk, length of the JSON of held results.
_HEADER = "=QQQI"
_SLOTS, _HELD_SIZE = 64, 8192
_HELD_AT = struct.calcsize(_HEADER)
_SLOTS_AT = _HELD_AT + _HELD_SIZE
_SLOT_SIZE = struct.calcsize(_SLOT)
_SIZE = _SLOTS_AT + _SLOTS * _SLOT_SIZE
_PAGE = mmap.PAGESIZE
#: Seconds for which a measured memory is used again.
_FRESH = 0.005


def shorten_key(key: Hashable) -> str:
    """Return the text of a key as reports have it."""
    return str(key)[:KEY_LENGTH]


@dataclass(frozen=True)
class MemoryRecord:
    """Content of a worker's file; the fields are as in a MemoryReport."""

    memory: int = 0
    empty: int = 0
    spilled: int = 0
    held: Mapping[str, int] | None = None
    running: tuple[RunningTask, ...] = ()


class MemoryFile:
    """The mapped file of a worker; the worker writes it and its nanny reads it."""

    def __init__(self, path: Path, create: bool = False) -> None:
        self._map = _create_map(path) if create else _open_map(path)
        self._free = list(range(_SLOTS))
        self._used: dict[Hashable, int] = {}

    def begin_task(self, key: Hashable, task: RunningTask) -> None:
        """Write a task that begins; more tasks than slots are left out."""
        if not self._free or key in self._used:
            return
        slot = self._used[key] = self._free.pop()
        text = shorten_key(key).encode(errors="replace")[:KEY_LENGTH]
        name = task.prefix.encode(errors="replace")[:100]
        at = _SLOTS_AT + slot * _SLOT_SIZE
        struct.pack_into(
            _SLOT, self._map, at, time.time(), task.memory_before, task.reserved_before,
            task.inputs, task.inputs_held, task.held_before, len(name), len(text), name + text,
        )  # fmt: skip

    def end_task(self, key: Hashable) -> None:
        """Remove a task."""
        slot = self._used.pop(key, None)
        if slot is not None:
            struct.pack_into("=d", self._map, _SLOTS_AT + slot * _SLOT_SIZE, 0.0)
            self._free.append(slot)

    def write_held(self, memory: int, empty: int, spilled: int, held: Mapping[str, int]) -> None:
        """Write what the process holds; the largest prefixes if there is no room for all."""
        largest = sorted(held.items(), key=lambda item: -item[1])[:60]
        text = json.dumps([[name[:100], size] for name, size in largest]).encode()
        if len(text) > _HELD_SIZE:
            text = json.dumps([[name[:20], size] for name, size in largest]).encode()
        self._map[_HELD_AT : _HELD_AT + len(text)] = text
        struct.pack_into(_HEADER, self._map, 0, memory, empty, spilled, len(text))

    def read(self) -> MemoryRecord:
        """Return the content."""
        memory, empty, spilled, length = struct.unpack_from(_HEADER, self._map, 0)
        held: dict[str, int] = {}
        with suppress(ValueError):  # the process was ended while it wrote the text
            held = dict(json.loads(self._map[_HELD_AT : _HELD_AT + length] or b"[]"))
        tasks = [task for slot in range(_SLOTS) if (task := self._read_slot(slot)) is not None]
        tasks.sort(key=lambda task: -task.seconds)
        return MemoryRecord(memory, empty, spilled, held, tuple(tasks))

    def _read_slot(self, slot: int) -> RunningTask | None:
        at = _SLOTS_AT + slot * _SLOT_SIZE
        began, memory, reserved, inputs, inputs_held, held, name, length, text = struct.unpack_from(
            _SLOT, self._map, at
        )
        if not began:
            return None
        return RunningTask(
            key=text[name : name + length].decode(errors="replace"),
            prefix=text[:name].decode(errors="replace"),
            seconds=round(max(0.0, time.time() - began), 3),
            memory_before=memory,
            inputs=inputs,
            reserved_before=reserved,
            inputs_held=inputs_held,
            held_before=held,
        )

    def close(self) -> None:
        """Unmap the file."""
        self._map.close()


def _open_map(path: Path) -> mmap.mmap:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), _SIZE)


def _create_map(path: Path) -> mmap.mmap:
    """Return the map of a file that has its place on the disk; of no file if the disk is full.

    The first write to a page without a place on a full disk ends the process with SIGBUS. A file
    of this name is not shortened, because a process that has mapped it would end the same way.
    """
    file = -1
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file, 0, _SIZE)
        else:
            os.write(file, bytes(_SIZE))
        created = mmap.mmap(file, _SIZE)
    except (OSError, ValueError):  # the latter if not all was written
        with suppress(OSError):
            path.unlink()
        return mmap.mmap(-1, _SIZE)
    finally:
        if file >= 0:
            os.close(file)
    created[:] = bytes(_SIZE)
    return created


class ProcessMemory:
    """Reader of the memory of this process, fast enough to be called for each task."""

    def __init__(self) -> None:
        self._file, self._read_at, self._last = -1, 0.0, (0, 0)
        with suppress(OSError):  # only Linux has this file
            self._file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)

    def read(self, fresh: bool = False) -> tuple[int, int]:
        """Return the resident and the allocated memory in bytes, at most 5 ms old, or `fresh`.

        Tasks that take less than that cannot have changed much, and should not wait for the kernel.
        """
        now = time.monotonic()
        if fresh or now - self._read_at > _FRESH:
            self._last, self._read_at = self._read(), now
        return self._last

    def _read(self) -> tuple[int, int]:
        if self._file < 0:
            import psutil

            return int(psutil.Process().memory_info().rss), 0
        sizes = os.pread(self._file, 128, 0).split()
        return int(sizes[1]) * _PAGE, int(sizes[5]) * _PAGE

    def close(self) -> None:
        """Close the file of the kernel."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def read_spilled(data: Any) -> int:
    """Return the bytes on disk of the results of a worker; 0 without Dask's spilling."""
    spilled = getattr(data, "spilled_total", None)
    return int(getattr(spilled, "disk", 0))


def read_shuffle_buffers(worker: Any) -> int:
    """Return the bytes of rows in the buffers of a worker's peer-to-peer shuffles."""
    shuffles = worker.extensions.get("shuffle")
    runs = shuffles.heartbeat().values() if shuffles is not None else ()
    return sum(int(run[part]["memory"]) for run in runs for part in ("disk", "comm"))
