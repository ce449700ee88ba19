"""An attempt at a step as sbatch takes it."""

from __future__ import annotations

import errno
import math
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from hyperplane.jobs import step_wrapper
from hyperplane.jobs.definition.models import Step
from hyperplane.jobs.processes import Command

#: Variables of a batch job, which the commands would take for options.
_BATCH_JOB_VARIABLES = (
    *("SLURM_", "SQUEUE_", "SCANCEL_", "SCONTROL_"),
    *("SBATCH_EXPORT", "SBATCH_JOB_NAME", "SBATCH_ARRAY", "SBATCH_CLUSTERS"),
)
#: What sbatch says when it would say something else later.
_TRANSIENT_ERROR = re.compile(
    r"contact slurm controller|temporarily|timed out|Socket|try again", re.I
)


class BatchJob(NamedTuple):
    """A batch job as sbatch takes it.

    Parameters
    ----------
    command : Command
        The attempt, or the array: its name, its folder and its environment count.
    argv : sequence of str
        Program and arguments.
    log : str
        Its log, in Slurm's words.
    options : sequence of str, optional
        More for sbatch.
    """

    command: Command
    argv: Sequence[str]
    log: str
    options: Sequence[str] = ()


def submit_attempt(
    command: Command, step: Step, memory_factor: float, outside: Mapping[str, str]
) -> str:
    """Give an attempt to sbatch; the number of its job.

    Parameters
    ----------
    command : Command
        What the attempt runs.
    step : Step
        Its step, for what it needs.
    memory_factor : float
        How many times the memory that the step asks for.
    outside : mapping of str to str
        In what Slurm's commands are found.

    Raises
    ------
    OSError
        With EAGAIN for what may pass, and with what sbatch said.
    """
    inner = (
        sys.executable,
        "-I",
        "-S",
        step_wrapper.__file__,
        str(command.attempt_prefix),
        *command.argv,
    )
    batch = BatchJob(command, inner, escape_path(command.file(".log")))
    return run_sbatch(batch, step, memory_factor, outside)


def run_sbatch(
    batch: BatchJob, step: Step, memory_factor: float, outside: Mapping[str, str]
) -> str:
    """As :func:`submit`, for a batch job or an array."""
    command = batch.command
    if not Path(command.folder).is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder", command.folder)
    enter = f"cd -- {shlex.quote(command.folder)} || exit 126"
    script = f"#!/bin/sh\n{enter}\nexec {shlex.join(batch.argv)}\n"
    options = [
        f"--job-name={batch_job_name(command)}",
        "--parsable",
        "--no-requeue",
        # All of the step's environment, and by this way only: it has its secrets.
        "--export=ALL",
        f"--output={batch.log}",
        *batch.options,
        *_resource_options(step, memory_factor),
    ]
    # Where Slurm is, even when the step shall not see it.
    conf = {name: text for name, text in outside.items() if name == "SLURM_CONF"}
    try:
        done = subprocess.run(  # noqa: S603 - a list of arguments; the script goes to its input
            [shutil.which("sbatch", path=outside.get("PATH")) or "sbatch", *options],
            input=script,
            env={**command_environment(command.environment), **conf},
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=120,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(errno.EAGAIN, "sbatch does not answer", "sbatch") from error
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        number = errno.EAGAIN if _TRANSIENT_ERROR.search(said) else errno.EPERM
        raise OSError(number, said, "sbatch")
    return done.stdout.strip().partition(";")[0]


def _resource_options(step: Step, memory_factor: float) -> list[str]:
    """What the step asks for, in Slurm's words; its pool has been put into numbers before."""
    asked = step.resources
    options = []
    if asked.cores is not None:
        options.append(f"--cpus-per-task={math.ceil(asked.cores)}")
    if asked.ram_gb is not None:
        options.append(f"--mem={math.ceil(asked.ram_gb * 1e9 * memory_factor / 2**20)}M")
    if asked.gpus:
        options.append(f"--gres=gpu:{asked.gpus}")
    return options


def batch_job_name(command: Command) -> str:
    """The name of the batch job: of this attempt only, and to be found by it."""
    above, _, attempt = str(command.attempt_prefix).rpartition("/steps/")
    return re.sub("[^A-Za-z0-9.-]+", "-", f"hyperplane-{Path(above).name}-{attempt}")


def escape_path(path: Path) -> str:
    """A path without the signs that Slurm replaces."""
    return str(path).replace("\\", "\\\\").replace("%", "%%")


def command_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment for Slurm's commands, without what a batch job around us has for them."""
    return {
        name: text
        for name, text in environment.items()
        if name == "SLURM_CONF" or not name.startswith(_BATCH_JOB_VARIABLES)
    }
