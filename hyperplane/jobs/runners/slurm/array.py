"""Submit attempts at chunks of one step as a job array.

Common settings, including the step's secrets, are passed as for a single batch job. Differences are
passed in a file in the job's shared folder that only its owner can read.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hyperplane.jobs import step_wrapper
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.execution.step_environment import secret_variables
from hyperplane.jobs.runners.slurm import array_task
from hyperplane.jobs.runners.slurm.job_id import prepare_id_file
from hyperplane.jobs.runners.slurm.submit import BatchJob, submit_batch
from hyperplane.platforms.slurm.arrays import format_indices
from hyperplane.platforms.slurm.commands import drop_job_variables
from hyperplane.platforms.slurm.logs import TASK_INDEX, escape_path

#: Folder of a chunk, with at least five digits; the last three are the task index, hence at most
#: 999. Sites allow 1,000 tasks by default.
_CHUNK = re.compile(r"(.*\d\d)(\d{3})")


def array_key(command: AttemptCommand, step: Step, memory_factor: float) -> Hashable:
    """Return a key that is equal for attempts of one array; None for a single batch job."""
    folder = command.attempt_prefix.parent
    chunk = _CHUNK.fullmatch(folder.name)
    # A backslash disables the placeholder for the task index.
    if chunk is None or "\\" in str(folder):
        return None
    secret_names = secret_variables(dict.fromkeys(step.secrets, ""))
    return (
        *(
            step.name,
            memory_factor,
            command.folder,
            folder.with_name(chunk[1]),
            command.attempt_prefix.name,
        ),
        # Secrets are the same in an array, because its file of differences must not contain them.
        *((name, command.environment.get(name)) for name in sorted(secret_names)),
    )


def task_index(command: AttemptCommand) -> int:
    """Return the task index of an attempt in its array."""
    return int(command.attempt_prefix.parent.name[-3:])


def array_command(commands: Sequence[AttemptCommand]) -> AttemptCommand:
    """Return the command of an array, with files beside the folders of the chunks."""
    first = commands[0].attempt_prefix
    prefix = first.parent.with_name(f"array-{first.parent.name}-{first.name}")
    return AttemptCommand((), {}, commands[0].folder, prefix)


def shared_variables(commands: Sequence[AttemptCommand]) -> dict[str, str]:
    """Return the variables that all attempts have in common."""
    return {
        name: value
        for name, value in drop_job_variables(commands[0].environment).items()
        if all(command.environment.get(name) == value for command in commands)
    }


def write_tasks(path: Path, commands: Iterable[AttemptCommand], shared: Mapping[str, str]) -> None:
    """Write the differences between tasks to a file."""
    index_lines, entries, offset = [], [], 0
    for command in commands:
        differences = [
            f"{name}={value}"
            for name, value in drop_job_variables(command.environment).items()
            if shared.get(name) != value
        ]
        words = [str(command.attempt_prefix), str(len(differences)), *differences, *command.argv]
        entries.append(b"\0".join(map(os.fsencode, words)))
        index_lines.append(f"{task_index(command)} {offset} {len(entries[-1])}\n")
        offset += len(entries[-1])
    path.unlink(missing_ok=True)
    path.touch(0o600, exist_ok=False)
    path.write_bytes("".join(index_lines).encode() + b"\n" + b"".join(entries))


def submit_array(
    array: AttemptCommand,
    commands: Sequence[AttemptCommand],
    step: Step,
    memory_factor: float,
    slurm_environment: Mapping[str, str],
) -> str:
    """Submit attempts with the same :func:`array_key` as one array and return its id.

    ``array`` is the result of :func:`array_command`. Raises OSError as for a single attempt, and if
    the file of tasks cannot be written.
    """
    prepare_id_file(array)
    for command in commands:
        prepare_id_file(command, array, task_index(command))
    tasks, shared = array.file(".tasks"), shared_variables(commands)
    write_tasks(tasks, commands, shared)
    first = commands[0].attempt_prefix
    below = escape_path(first.parent)[:-3] + TASK_INDEX
    batch = BatchJob(
        replace(array, environment=shared),
        (sys.executable, "-I", "-S", array_task.__file__, str(tasks), step_wrapper.__file__),
        log=f"{below}/{escape_path(Path(first.name))}.log",
        array=format_indices(map(task_index, commands)),
    )
    return submit_batch(batch, step, memory_factor, slurm_environment)
