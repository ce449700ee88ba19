"""``python -m hyperplane.ml.search.program_wrapper PARENT PROGRAM ARGUMENT...``: run a program.

The program ends when the process PARENT, a worker, ends; otherwise the programs of a killed search
would go on.
"""

from __future__ import annotations

import os
import sys

from hyperplane.clusters.dask.parent_death import end_with_parent


def main() -> None:
    """Replace this process by the program."""
    parent = int(sys.argv[1])
    end_with_parent(lambda: os.getppid() == parent)
    program = sys.argv[2:]
    try:
        os.execvp(program[0], program)  # noqa: S606 - a list of arguments, and no shell
    except OSError as error:
        sys.exit(f"cannot start {program[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
