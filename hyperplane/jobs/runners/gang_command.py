"""Command of a gang step, whose processes one program starts."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Literal

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.gang import gang_program


def add_gang_program(
    command: AttemptCommand, step: Step, platform: Literal["local", "slurm"]
) -> AttemptCommand:
    """Return the command that runs all processes of an attempt; others are returned unchanged."""
    if not step.gang_size:
        return command
    folder = str(command.file(".ranks"))
    words = (sys.executable, "-I", "-S", gang_program.__file__, platform, folder)
    return replace(command, argv=(*words, *command.argv))
