"""Names of the jobs of attempts in other systems, such as Kubernetes."""

from __future__ import annotations

import re
from pathlib import Path

from hyperplane.jobs.execution.attempt_process import AttemptCommand


def attempt_job_name(command: AttemptCommand) -> str:
    """Return the unique, reproducible name of the job of an attempt in another system.

    Examples
    --------
    >>> folder = Path("/jobs/8f2c0a11-1111-4000-8000-000000000001/steps/002-Tidy up/chunk-00007")
    >>> attempt_job_name(AttemptCommand((), {}, "", folder / "attempt-1"))
    'hyperplane-8f2c0a11-1111-002-tidy-up-00007-1'
    """
    above, _, attempt = str(command.attempt_prefix).rpartition("/steps/")
    step, *chunk, number = attempt.split("/")
    words = [Path(above).name[:13], step[:24], *(part.removeprefix("chunk-") for part in chunk)]
    words.append(number.removeprefix("attempt-"))
    return re.sub("[^a-z0-9]+", "-", "-".join(["hyperplane", *words]).lower())


def name_prefix(command: AttemptCommand) -> str:
    """Return the beginning of the names of all attempts of the job of an attempt.

    Examples
    --------
    >>> folder = Path("/jobs/8f2c0a11-1111-4000-8000-000000000001/steps/002-Tidy up/chunk-00007")
    >>> name_prefix(AttemptCommand((), {}, "", folder / "attempt-1"))
    'hyperplane-8f2c0a11-1111-'
    """
    return re.sub("[^a-z0-9]+", "-", f"hyperplane-{owning_job_id(command)[:13]}-".lower())


def owning_job_id(command: AttemptCommand) -> str:
    """Return the id of the job that an attempt belongs to."""
    return Path(str(command.attempt_prefix).rpartition("/steps/")[0]).name
