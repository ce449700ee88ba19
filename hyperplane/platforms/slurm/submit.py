"""Submit batch scripts with sbatch."""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping, Sequence

from hyperplane.platforms.slurm.commands import (
    CONFIGURATION_VARIABLE,
    CommandResult,
    run_command,
    run_command_async,
)

#: Seconds that sbatch may take: it repeats requests to a busy controller.
SUBMIT_TIMEOUT_SECONDS = 120.0
#: Messages of sbatch for temporary failures.
_TRANSIENT_MESSAGE = re.compile(
    r"contact slurm controller|temporarily|timed out|Socket|try again", re.IGNORECASE
)
#: Message of sbatch where arrays are unavailable or limited.
_ARRAY_MESSAGE = "Invalid job array"


def submit_script(
    script: str,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    job_environment: Mapping[str, str] | None = None,
) -> str:
    """Submit a batch script and return the id of its job or array.

    Slurm's commands and settings are those of ``environment``, by default that of this process.
    With ``--export=ALL``, which is sbatch's default, the job inherits ``job_environment``, by
    default ``environment``, without the variables of a surrounding job. No value of a variable is
    in the script or on a command line.

    Raises
    ------
    OSError
        With the message of sbatch; its errno is EAGAIN for temporary failures.
    """
    words, variables, path = _command(options, environment, job_environment)
    try:
        result = run_command(
            words, variables, stdin=script, path=path, timeout=SUBMIT_TIMEOUT_SECONDS
        )
    except TimeoutError as error:
        raise _no_answer_error(error) from error
    return _read_job_id(result)


async def submit_script_async(
    script: str, options: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> str:
    """Do the same as :func:`submit_script`, by default in the environment of this process.

    There is no time limit, because a submission without a response may have been accepted, and its
    job cannot be cancelled without an id.
    """
    words, variables, path = _command(options, environment, None)
    result = await run_command_async(words, variables, stdin=script, path=path, timeout=None)
    return _read_job_id(result)


def describe_submit_error(error: OSError) -> str:
    """Return why a script could not be submitted."""
    # sbatch is searched on PATH before it is started.
    if isinstance(error, FileNotFoundError):
        return "sbatch is not on PATH; use a machine from which jobs can be submitted"
    return f"sbatch refused the job: {error.strerror}"


def is_array_refusal(error: OSError) -> bool:
    """Return whether sbatch has refused arrays, or an array of this length."""
    return _ARRAY_MESSAGE in str(error)


def _command(
    options: Sequence[str],
    environment: Mapping[str, str] | None,
    job_environment: Mapping[str, str] | None,
) -> tuple[list[str], Mapping[str, str] | None, str | None]:
    """Return the command, its environment, and the PATH on which it is searched."""
    words = ["sbatch", "--parsable", *options]
    if job_environment is None:
        return words, environment, None
    slurm_environment = {} if environment is None else environment
    # sbatch needs the location of Slurm's configuration, even if the job sets a different one.
    location = slurm_environment.get(CONFIGURATION_VARIABLE)
    variables = {} if location is None else {CONFIGURATION_VARIABLE: location}
    return words, {**job_environment, **variables}, slurm_environment.get("PATH")


def _no_answer_error(error: TimeoutError) -> OSError:
    """Return the error of an sbatch that did not end; Slurm may have accepted the job."""
    return OSError(errno.EAGAIN, error.strerror, error.filename)


def _read_job_id(result: CommandResult) -> str:
    if result.exit_code:
        transient = _TRANSIENT_MESSAGE.search(result.message)
        raise OSError(errno.EAGAIN if transient else errno.EPERM, result.message, "sbatch")
    # In a federation the name of a cluster follows.
    return result.output.strip().partition(";")[0]
