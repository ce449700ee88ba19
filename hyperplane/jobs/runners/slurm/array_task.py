"""``python array_task.py TASKS WRAPPER``: run the task of a job array with Slurm's index.

``TASKS`` is a file with the differences of each task: the prefix of its files, its variables,
program and arguments. ``WRAPPER`` is the program that runs it. The imports are few, because they
delay the start of every task.
"""

from __future__ import annotations

import os
import sys

#: Removed: which attempts form an array depends on timing and must not affect the step.
_ARRAY_PREFIX = b"SLURM_ARRAY_"


def read_task(path: str, index: int) -> tuple[bytes, list[bytes], list[bytes]]:
    """Return the file prefix of a task, its variables as ``NAME=value``, and its command."""
    location = None
    with open(path, "rb") as tasks:  # noqa: PTH123 - pathlib is slow to import
        while line := tasks.readline().strip():
            number, offset, size = map(int, line.split())
            if number == index:
                location = (offset, size)
        if location is None:
            raise LookupError(f"no task {index} in {path}")
        tasks.seek(location[0], os.SEEK_CUR)
        prefix, count, *rest = tasks.read(location[1]).split(b"\0")
    return prefix, rest[: int(count)], rest[int(count) :]


def main(path: str, wrapper: str) -> None:
    """Replace this process by the wrapper of the step."""
    prefix, variables, argv = read_task(path, int(os.environ["SLURM_ARRAY_TASK_ID"]))
    environment = {
        name: value for name, value in os.environb.items() if not name.startswith(_ARRAY_PREFIX)
    }
    for variable in variables:
        name, _, value = variable.partition(b"=")
        environment[name] = value
    words = [os.fsencode(sys.executable), b"-I", b"-S", os.fsencode(wrapper), prefix, *argv]
    os.execve(words[0], words, environment)  # noqa: S606 - no shell


if __name__ == "__main__":
    main(*sys.argv[1:])
