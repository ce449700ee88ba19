"""Processes that create the same objects: a small module, because each of them imports it."""

from __future__ import annotations

from threading import Barrier

import faulty  # noqa: F401 - registers the file system
import fsspec

BARRIERS: list[Barrier] = []
#: How often the processes meet and create an object.
RACES = 200


def meet(barrier: Barrier) -> None:
    """Set the point at which the processes wait for each other."""
    BARRIERS.append(barrier)


def create(root: str, data: bytes) -> list[int]:
    """Try to create all objects; return the numbers of those that this process created."""
    system = fsspec.filesystem("faulty", root=root)
    won = []
    for race in range(RACES):
        BARRIERS[0].wait(250)  # the others may still import
        try:
            system.pipe_file(f"bucket/{race}", data, mode="create")
        except FileExistsError:
            continue
        won.append(race)
    return won
