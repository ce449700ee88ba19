"""Text of the program of all containers: one object of the staging folder, which needs no others.

``task_program.py`` gets the texts of the files that measure the program of a step, so that a
container does not fetch each of them.
"""

from __future__ import annotations

from pathlib import Path

from hyperplane.jobs.runners import measured_program, task_program
from hyperplane.jobs.runners.staged_code import TaskFile
from hyperplane.platforms.local import process_meter

_EMPTY = "\n_SOURCES: dict[str, str] = {}\n"


def read_task_program() -> TaskFile:
    """Return the program of the containers, which is an object of the staging folder."""
    files = [Path(str(module.__file__)) for module in (measured_program, process_meter)]
    sources = {file.name: file.read_text(encoding="utf-8") for file in files}
    program = Path(str(task_program.__file__))
    before, after = program.read_text(encoding="utf-8").split(_EMPTY)
    text = f"{before}\n_SOURCES: dict[str, str] = {sources!r}\n{after}"
    return TaskFile(program.name, text.encode())
