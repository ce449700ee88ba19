"""Attempts at chunks of one step as one job array.

What the chunks have in common, the step's secrets among it, goes the way of a single batch job.
What differs goes by a file that only its owner can read, in the job's folder, which nodes share.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hyperplane.jobs import step_wrapper
from hyperplane.jobs.definition.models import Step
from hyperplane.jobs.environment import secret_variables
from hyperplane.jobs.processes import Command
from hyperplane.jobs.runners import slurm_task
from hyperplane.jobs.runners.slurm_job_id import prepare_id_file
from hyperplane.jobs.runners.slurm_submit import (
    BatchJob,
    command_environment,
    escape_path,
    run_sbatch,
)

#: A folder of a chunk, which has at least five digits: the last three are the number of its task.
#: So the largest is 999, and sites allow 1,000 unless they say otherwise.
_CHUNK = re.compile(r"(.*\d\d)(\d{3})")
#: What sbatch says where there are no arrays, or only small ones.
ARRAY_REFUSED = "Invalid job array"


def array_key(command: Command, step: Step, memory_factor: float) -> Hashable:
    """What attempts have in common that can be one array; None for one that is always alone."""
    folder = command.attempt_prefix.parent
    chunk = _CHUNK.fullmatch(folder.name)
    # A backslash would turn off the sign that stands for the number of the task.
    if chunk is None or "\\" in str(folder):
        return None
    hidden = secret_variables(dict.fromkeys(step.secrets, ""))
    return (
        *(
            step.name,
            memory_factor,
            command.folder,
            folder.with_name(chunk[1]),
            command.attempt_prefix.name,
        ),
        # One whose secret has changed meanwhile is none of them: a secret goes into no file.
        *((name, command.environment.get(name)) for name in sorted(hidden)),
    )


def task_index(command: Command) -> int:
    """The number of an attempt's task in its array."""
    return int(command.attempt_prefix.parent.name[-3:])


def array_command(commands: Sequence[Command]) -> Command:
    """An array, with traces of its own beside the folders of the chunks."""
    first = commands[0].attempt_prefix
    traces = first.parent.with_name(f"array-{first.parent.name}-{first.name}")
    return Command((), {}, commands[0].folder, traces)


def shared_variables(commands: Sequence[Command]) -> dict[str, str]:
    """The variables that attempts have in common."""
    return {
        name: value
        for name, value in command_environment(commands[0].environment).items()
        if all(one.environment.get(name) == value for one in commands)
    }


def write_tasks(path: Path, commands: Iterable[Command], common: Mapping[str, str]) -> None:
    """Write down what the tasks do not have in common."""
    places, entries, offset = [], [], 0
    for command in commands:
        own = [
            f"{name}={value}"
            for name, value in command_environment(command.environment).items()
            if common.get(name) != value
        ]
        words = [str(command.attempt_prefix), str(len(own)), *own, *command.argv]
        entries.append(b"\0".join(map(os.fsencode, words)))
        places.append(f"{task_index(command)} {offset} {len(entries[-1])}\n")
        offset += len(entries[-1])
    path.unlink(missing_ok=True)
    path.touch(0o600, exist_ok=False)
    path.write_bytes("".join(places).encode() + b"\n" + b"".join(entries))


def submit_array(
    whole: Command,
    commands: Sequence[Command],
    step: Step,
    memory_factor: float,
    outside: Mapping[str, str],
) -> str:
    """Give attempts to sbatch as one array; its number.

    Parameters
    ----------
    whole : Command
        The array, as :func:`whole_of` makes it.
    commands : sequence of Command
        What the attempts run, all of one :func:`kind_of`.
    step : Step
        Their step, for what it needs.
    memory_factor : float
        How many times the memory that the step asks for.
    outside : mapping of str to str
        In what Slurm's commands are found.

    Raises
    ------
    OSError
        As for a single one; and when the file for the tasks cannot be written.
    """
    prepare_id_file(whole)
    for command in commands:
        prepare_id_file(command, whole, task_index(command))
    tasks, common = whole.file(".tasks"), shared_variables(commands)
    write_tasks(tasks, commands, common)
    first = commands[0].attempt_prefix
    below = escape_path(first.parent)[:-3] + "%3a"
    batch = BatchJob(
        replace(whole, environment=common),
        (sys.executable, "-I", "-S", slurm_task.__file__, str(tasks), step_wrapper.__file__),
        log=f"{below}/{escape_path(Path(first.name))}.log",
        options=(f"--array={','.join(str(task_index(one)) for one in commands)}",),
    )
    return run_sbatch(batch, step, memory_factor, outside)
