"""Submit an attempt with sbatch."""

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
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.processes import AttemptCommand

#: Variables of a surrounding batch job, which Slurm's commands would read as options.
_BATCH_JOB_VARIABLES = (
    *("SLURM_", "SQUEUE_", "SCANCEL_", "SCONTROL_"),
    *("SBATCH_EXPORT", "SBATCH_JOB_NAME", "SBATCH_ARRAY", "SBATCH_CLUSTERS"),
)
#: Messages of sbatch for temporary failures.
_TRANSIENT_ERROR = re.compile(
    r"contact slurm controller|temporarily|timed out|Socket|try again", re.I
)


class BatchJob(NamedTuple):
    """A batch job for sbatch.

    Parameters
    ----------
    command : AttemptCommand
        The attempt or array, with name, folder and environment.
    argv : sequence of str
        Program and arguments.
    log : str
        Path of its log in Slurm's syntax.
    options : sequence of str, optional
        Additional options of sbatch.
    """

    command: AttemptCommand
    argv: Sequence[str]
    log: str
    options: Sequence[str] = ()


def submit_attempt(
    command: AttemptCommand, step: Step, memory_factor: float, slurm_environment: Mapping[str, str]
) -> str:
    """Submit an attempt with sbatch and return its job id.

    Parameters
    ----------
    command : AttemptCommand
        Its command.
    step : Step
        Its step, for its resources.
    memory_factor : float
        Factor by which the step's memory is multiplied.
    slurm_environment : mapping of str to str
        Environment in which Slurm's commands are found.

    Raises
    ------
    OSError
        With the message of sbatch; EAGAIN for temporary failures.
    """
    argv = (
        sys.executable,
        "-I",
        "-S",
        step_wrapper.__file__,
        str(command.attempt_prefix),
        *command.argv,
    )
    batch = BatchJob(command, argv, escape_path(command.file(".log")))
    return run_sbatch(batch, step, memory_factor, slurm_environment)


def run_sbatch(
    batch: BatchJob, step: Step, memory_factor: float, slurm_environment: Mapping[str, str]
) -> str:
    """Submit a batch job or array; otherwise as :func:`submit_attempt`."""
    command = batch.command
    if not Path(command.folder).is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder", command.folder)
    enter = f"cd -- {shlex.quote(command.folder)} || exit 126"
    script = f"#!/bin/sh\n{enter}\nexec {shlex.join(batch.argv)}\n"
    options = [
        f"--job-name={batch_job_name(command)}",
        "--parsable",
        "--no-requeue",
        # The whole environment of the step, which includes secrets, is passed only in this way.
        "--export=ALL",
        f"--output={batch.log}",
        *batch.options,
        *_resource_options(step, memory_factor),
    ]
    # Location of Slurm's configuration, even if the step must not see it.
    conf = {name: text for name, text in slurm_environment.items() if name == "SLURM_CONF"}
    try:
        done = subprocess.run(  # noqa: S603 - a list of arguments; the script goes to its input
            [shutil.which("sbatch", path=slurm_environment.get("PATH")) or "sbatch", *options],
            input=script,
            env={**command_environment(command.environment), **conf},
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=120,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(errno.EAGAIN, "sbatch does not respond", "sbatch") from error
    if done.returncode:
        message = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        number = errno.EAGAIN if _TRANSIENT_ERROR.search(message) else errno.EPERM
        raise OSError(number, message, "sbatch")
    return done.stdout.strip().partition(";")[0]


def _resource_options(step: Step, memory_factor: float) -> list[str]:
    """Return the sbatch options for the resources of a step; its pool was resolved before."""
    resources = step.resources
    options = []
    if resources.cores is not None:
        options.append(f"--cpus-per-task={math.ceil(resources.cores)}")
    if resources.ram_gb is not None:
        options.append(f"--mem={math.ceil(resources.ram_gb * 1e9 * memory_factor / 2**20)}M")
    if resources.gpus:
        options.append(f"--gres=gpu:{resources.gpus}")
    return options


def batch_job_name(command: AttemptCommand) -> str:
    """Return the unique, reproducible name of an attempt's batch job."""
    above, _, attempt = str(command.attempt_prefix).rpartition("/steps/")
    return re.sub("[^A-Za-z0-9.-]+", "-", f"hyperplane-{Path(above).name}-{attempt}")


def escape_path(path: Path) -> str:
    """Escape the placeholders of Slurm in a path."""
    return str(path).replace("\\", "\\\\").replace("%", "%%")


def command_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment for Slurm's commands, without variables of a surrounding job."""
    return {
        name: text
        for name, text in environment.items()
        if name == "SLURM_CONF" or not name.startswith(_BATCH_JOB_VARIABLES)
    }
