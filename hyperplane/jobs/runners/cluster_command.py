"""Command of a step whose cluster starts before its program."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution import attempt_process
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.execution.cluster_arguments import prestarted_framework

# Not imported, because the engines of clusters take a second to import.
_PROGRAM = Path(attempt_process.__file__).with_name("cluster_program.py")
_MODULE = f"{attempt_process.__name__.rpartition('.')[0]}.{_PROGRAM.stem}"


def cluster_words(step: Step, python: str) -> list[str]:
    """Return the words before the program of a step with a cluster; none for other steps."""
    # -P: the folder of the program is not searched for modules.
    return [python, "-P", str(_PROGRAM)] if prestarted_framework(step) else []


def cluster_words_in_image(step: Step) -> list[str]:
    """Return the same words for an image, in which the package may be in any folder."""
    return ["python", "-P", "-m", _MODULE] if prestarted_framework(step) else []


def add_cluster_program(command: AttemptCommand, step: Step) -> AttemptCommand:
    """Return the command that starts and ends the cluster; others are returned unchanged."""
    return replace(command, argv=(*cluster_words(step, command.python), *command.argv))
