"""Command of a step whose cluster starts before its program."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution import attempt_process
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.execution.cluster_arguments import prestarted_framework

# Not imported, because the engines of clusters take a second to import.
_PROGRAM = str(Path(attempt_process.__file__).with_name("cluster_program.py"))


def add_cluster_program(command: AttemptCommand, step: Step) -> AttemptCommand:
    """Return the command that starts and ends the cluster; others are returned unchanged."""
    if not prestarted_framework(step):
        return command
    # -P: the folder of the program is not searched for modules.
    return replace(command, argv=(command.python, "-P", _PROGRAM, *command.argv))
