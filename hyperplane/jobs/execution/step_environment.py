"""Environment variables of a step: its job, parameters, chunk and secrets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hyperplane.clusters.gang_plan import PLAN_VARIABLE, RESTARTS_VARIABLE
from hyperplane.jobs.execution.step_command import plan_gang
from hyperplane.jobs.submission.parameters import (
    as_json,
    is_protected,
    parameter_variables,
    variable_name,
)

if TYPE_CHECKING:
    from hyperplane.jobs.definition.step import Step
    from hyperplane.jobs.store.job_records import Job, WorkUnit

SECRET_PREFIX = "HYPERPLANE_CUSTOM_SECRET_KEY_"  # noqa: S105 - a name, and no secret
#: File in which a notebook step records the cell that it executes.
PROGRESS = "HYPERPLANE_JOB_PROGRESS"
#: All parameters as JSON, for the parameter cell of a notebook.
PARAMETERS = "HYPERPLANE_JOB_PARAMETERS"
#: Kernel that a step selects for its notebook.
KERNEL = "HYPERPLANE_JOB_KERNEL"
#: Folder for files that are attached to the job.
OUTPUT_FOLDER = "HYPERPLANE_JOB_OUTPUT_FOLDER"
#: Folder for the checkpoints of a gang.
CHECKPOINTS = "HYPERPLANE_CHECKPOINTS"


def step_variables(job: Job, step: Step, unit: WorkUnit, pieces: int) -> dict[str, str]:
    """Return the variables of a step beyond the environment of the submission."""
    parameters = dict(job.parameters)
    variables = {
        "HYPERPLANE_JOB_ID": job.id,
        "HYPERPLANE_JOB_RUN_ID": job.run_id,
        "HYPERPLANE_JOB_NAME": job.name,
        "HYPERPLANE_JOB_PIPELINE": job.pipeline.name,
        "HYPERPLANE_JOB_STEP": step.name,
        "HYPERPLANE_JOB_FOLDER": job.folder,
        # Unbuffered, so that the log is up to date.
        "PYTHONUNBUFFERED": "1",
    }
    if unit.chunks:
        parameters["chunk_id"] = str(unit.chunk)
        variables["HYPERPLANE_SHARD_INDEX"] = str(unit.chunk)
        variables["HYPERPLANE_SHARD_COUNT"] = str(unit.chunks)
        if step.foreach:
            parameters["item"] = step.foreach[unit.chunk]
    if pieces > 1:
        parameters["pieces"] = str(pieces)
    if step.gang_size:
        variables[PLAN_VARIABLE] = plan_gang(step).to_json()
    if step.kernel is not None:
        variables[KERNEL] = step.kernel
    variables |= parameter_variables(parameters)
    variables[PARAMETERS] = as_json(parameters)
    return {**variables, **step.env}


def gang_variables(step: Step, prefix: Path, number: int, has_files: bool) -> dict[str, str]:
    """Return the variables of all processes of a gang that depend on the attempt.

    ``prefix`` is the path of the attempt's files, which the processes can use if ``has_files``.
    """
    if not step.gang_size:
        return {}
    variables = {RESTARTS_VARIABLE: str(number - 1)}
    if has_files and CHECKPOINTS not in step.env:
        folder = prefix.parent / "checkpoints"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        variables[CHECKPOINTS] = str(folder)
    return variables


def find_secrets(
    names: Iterable[str], environment: Mapping[str, str], folder: str
) -> tuple[dict[str, str], list[str]]:
    """Return the values of secrets from the environment or files, and the missing names."""
    values: dict[str, str] = {}
    missing: list[str] = []
    for name in names:
        value = (
            environment.get(name)
            or environment.get(variable_name(name))
            or _read_secret_file(folder, name)
        )
        if value is None:
            missing.append(name)
        else:
            values[name] = value
    return values, missing


def secret_variables(values: Mapping[str, str]) -> dict[str, str]:
    """Return the variables in which steps find secrets."""
    plain = {variable_name(name): value for name, value in values.items()}
    return {
        **{SECRET_PREFIX + name: value for name, value in plain.items()},
        **{name: value for name, value in plain.items() if not is_protected(name)},
        **{name: value for name, value in values.items() if name.isidentifier()},
    }


def without_other_secrets(
    step: Step, steps: Iterable[Step], environment: Mapping[str, str]
) -> dict[str, str]:
    """Remove the secrets of other steps from an environment.

    Returns all variables except those of secrets that ``step`` does not name, in any spelling.

    Examples
    --------
    >>> from hyperplane.jobs import Step
    >>> one = Step(name="one", kind="command", argv=("true",), secrets=("db/password",))
    >>> two = Step(name="two", kind="command", argv=("true",))
    >>> without_other_secrets(two, [one, two], {"DB_PASSWORD": "...", "PATH": "/bin"})
    {'PATH': '/bin'}
    """
    of_all = {
        spelled for other in steps for name in other.secrets for spelled in _secret_spellings(name)
    }
    hidden = of_all - {spelled for name in step.secrets for spelled in _secret_spellings(name)}
    return {name: value for name, value in environment.items() if name not in hidden}


def _secret_spellings(name: str) -> set[str]:
    """Return the variables that may hold a secret."""
    return {name, variable_name(name), SECRET_PREFIX + variable_name(name)}


def _read_secret_file(folder: str, name: str) -> str | None:
    try:
        return Path(folder, name).read_text().rstrip("\n")
    except (OSError, ValueError):
        return None
