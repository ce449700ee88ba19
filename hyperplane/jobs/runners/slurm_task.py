"""``python slurm_task.py TASKS AROUND``: becomes one task of an array, as Slurm has numbered it.

``TASKS`` has for each task what differs from the others: where its traces are, its own variables,
its program and its arguments. ``AROUND`` is the program that runs it then. It imports next to
nothing, because every task pays for it.
"""

from __future__ import annotations

import os
import sys

#: Which of the attempts run as an array is a matter of chance: the step shall not see it.
_ARRAY_PREFIX = b"SLURM_ARRAY_"


def read_task(path: str, index: int) -> tuple[bytes, list[bytes], list[bytes]]:
    """The traces of a task, its variables as ``NAME=value``, and its program with arguments."""
    place = None
    with open(path, "rb") as tasks:  # noqa: PTH123 - pathlib takes longer than we do
        while line := tasks.readline().strip():
            number, offset, size = map(int, line.split())
            if number == index:
                place = (offset, size)
        if place is None:
            raise LookupError(f"no task {index} in {path}")
        tasks.seek(place[0], os.SEEK_CUR)
        traces, count, *rest = tasks.read(place[1]).split(b"\0")
    return traces, rest[: int(count)], rest[int(count) :]


def main(path: str, around: str) -> None:
    """Become the program around the step."""
    traces, variables, argv = read_task(path, int(os.environ["SLURM_ARRAY_TASK_ID"]))
    environment = {
        name: value for name, value in os.environb.items() if not name.startswith(_ARRAY_PREFIX)
    }
    for variable in variables:
        name, _, value = variable.partition(b"=")
        environment[name] = value
    words = [os.fsencode(sys.executable), b"-I", b"-S", os.fsencode(around), traces, *argv]
    os.execve(words[0], words, environment)  # noqa: S606 - no shell


if __name__ == "__main__":
    main(*sys.argv[1:])
