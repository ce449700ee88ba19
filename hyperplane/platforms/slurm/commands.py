"""Run Slurm's commands with a time limit, and without the variables of a surrounding job."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

#: Commands that submit jobs, query them and end them.
COMMANDS = ("sbatch", "squeue", "scancel")
#: Seconds that a command may take; Slurm's commands try for up to a minute to reach the controller.
COMMAND_TIMEOUT_SECONDS = 90.0
#: Beginnings of the names of a surrounding job's variables, which Slurm's commands would read as
#: options. Other variables stay: users set ``SBATCH_PARTITION``, for example, for all their jobs.
_JOB_VARIABLES = (
    *("SLURM_", "SQUEUE_", "SCANCEL_", "SCONTROL_"),
    *("SBATCH_EXPORT", "SBATCH_JOB_NAME", "SBATCH_ARRAY", "SBATCH_CLUSTERS"),
)
#: Location of Slurm's configuration, which is not a variable of a job.
CONFIGURATION_VARIABLE = "SLURM_CONF"


class CommandResult(NamedTuple):
    """Exit code, standard output and standard error of a command that has ended."""

    exit_code: int
    output: str
    errors: str

    @property
    def message(self) -> str:
        """Standard error in one line, or the exit code if it is empty."""
        lines = (line.strip() for line in self.errors.splitlines())
        return "; ".join(filter(None, lines)) or f"exit code {self.exit_code}"


def find_missing_commands(environment: Mapping[str, str] | None = None) -> list[str]:
    """Return the commands that are not on the PATH of an environment, by default this one."""
    path = None if environment is None else environment.get("PATH")
    return [name for name in COMMANDS if shutil.which(name, path=path) is None]


def describe_missing_commands() -> str:
    """Return which commands are not on PATH, with advice; empty if all are."""
    absent = ", ".join(find_missing_commands())
    return absent and f"{absent} not on PATH: use a machine from which jobs can be submitted"


def drop_job_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables of the job that this process may run in."""
    return {
        name: text
        for name, text in environment.items()
        if name == CONFIGURATION_VARIABLE or not name.startswith(_JOB_VARIABLES)
    }


def run_command(
    words: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    stdin: str = "",
    path: str | None = None,
    timeout: float = COMMAND_TIMEOUT_SECONDS,
) -> CommandResult:
    """Run a command to its end, by default in the environment of this process.

    The command does not get the variables of a surrounding job, see :func:`drop_job_variables`. It
    is searched on ``path``, by default the PATH of its environment.

    Raises
    ------
    OSError
        If the command cannot be started.
    TimeoutError
        If it did not end in time; it was killed.
    """
    try:
        result = subprocess.run(  # noqa: S603 - a list of arguments, and no shell
            [_find_program(words[0], environment, path), *words[1:]],
            env=_command_environment(environment),
            input=os.fsencode(stdin),
            capture_output=True,
            check=False,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired as error:
        raise _timeout_error(words[0], timeout) from error
    return CommandResult(result.returncode, _decode(result.stdout), _decode(result.stderr))


async def run_command_async(
    words: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    stdin: str = "",
    path: str | None = None,
    timeout: float | None = COMMAND_TIMEOUT_SECONDS,
    kill_on_cancel: bool = False,
) -> CommandResult:
    """Do the same as :func:`run_command` without a thread, which cannot be started at exit.

    With ``timeout=None`` there is no time limit. With ``kill_on_cancel`` the command is killed if
    this call is cancelled; a killed submission could leave a job without a known id.
    """
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        _find_program(words[0], environment, path),
        *words[1:],
        env=_command_environment(environment),
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
    )
    try:
        output, errors = await asyncio.wait_for(process.communicate(os.fsencode(stdin)), timeout)
    except TimeoutError as error:
        await _kill(process)
        raise _timeout_error(words[0], timeout or 0.0) from error
    except asyncio.CancelledError:
        if kill_on_cancel:
            await _kill(process)
        raise
    return CommandResult(process.returncode or 0, _decode(output), _decode(errors))


async def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


async def cancel_jobs(
    job_ids: Iterable[str], environment: Mapping[str, str] | None = None
) -> CommandResult:
    """Cancel jobs; running ones get SIGTERM, and SIGKILL after Slurm's grace time."""
    return await run_command_async(["scancel", *job_ids], environment)


def _command_environment(environment: Mapping[str, str] | None) -> dict[str, str]:
    return drop_job_variables(os.environ if environment is None else environment)


def _find_program(name: str, environment: Mapping[str, str] | None, path: str | None) -> str:
    search_path = path or (os.environ if environment is None else environment).get("PATH")
    return shutil.which(name, path=search_path) or name


def _timeout_error(name: str, timeout: float) -> TimeoutError:
    return TimeoutError(errno.ETIMEDOUT, f"{name} does not answer within {timeout:g} s", name)


def _decode(output: bytes) -> str:
    return output.decode(errors="replace")
