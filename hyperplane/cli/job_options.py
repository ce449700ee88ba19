"""What the commands of ``hyperplane job`` have in common: options of a job, and exit codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from hyperplane.errors import Fault, RequestError, check
from hyperplane.jobs.job_progress import to_plain_line
from hyperplane.jobs.states import CANCELLED, DONE, FAILED, TIMED_OUT, Job
from hyperplane.jobs.submitting import job_warnings, new_job
from hyperplane.units import parse_seconds

#: As those of ``timeout`` and of a shell whose program was interrupted.
EXIT_CODES = {DONE: 0, FAILED: 1, TIMED_OUT: 124, CANCELLED: 130}
INTERRUPTED = EXIT_CODES[CANCELLED]

FileArgument = Annotated[
    Path, typer.Argument(help="A pipeline file, or a single script or notebook.")
]
ParametersOption = Annotated[
    list[str] | None,
    typer.Option(
        "-p",
        "--parameter",
        metavar="KEY=VALUE",
        help="A parameter of the job; several times for several.",
    ),
]
NameOption = Annotated[
    str | None, typer.Option(help="Name of the job; one is made up if not given.")
]
TimeoutOption = Annotated[
    str | None,
    typer.Option(
        metavar="SECONDS", help="From now until it must have ended, as 600 or 10m; -1: no limit."
    ),
]
ActiveOption = Annotated[
    str | None, typer.Option(metavar="SECONDS", help="The same from when its first step starts.")
]
RetriesOption = Annotated[
    int | None, typer.Option(help="How often a job that failed is tried again, 0 to 10.")
]
RunnerOption = Annotated[
    str,
    typer.Option(help="Where its steps run: local (here), slurm or kubernetes."),
]
RunnerOptionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--runner-option",
        metavar="NAME=VALUE",
        help="For kubernetes: root, and settings of the engine, as image; several times.",
    ),
]
ScheduleOption = Annotated[
    str, typer.Option(metavar="NAME", help="Mark it as a run of this schedule.")
]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of a job, or its beginning.")]
IdsArgument = Annotated[
    list[str], typer.Argument(metavar="ID...", help="Ids of jobs, or their beginnings.")
]


def asked_job(
    file: Path,
    *,
    parameter: Sequence[str] | None = None,
    name: str | None = None,
    timeout: str | None = None,
    active_timeout: str | None = None,
    max_retries: int | None = None,
    schedule: str = "",
    runner: str = "local",
    runner_options: Mapping[str, Any] | None = None,
    here: bool = True,
) -> Job:
    """The job that the options ask for, to run here or not; its warnings go to standard error.

    Raises
    ------
    RequestError
        With all that is wrong with the options and with the pipeline.
    """
    faults: list[Fault] = []
    parameters = _parameters(parameter or (), faults)
    seconds = {
        "--timeout": _seconds(timeout, "--timeout", faults),
        "--active-timeout": _seconds(active_timeout, "--active-timeout", faults),
    }
    try:
        job = new_job(
            file,
            name=name,
            timeout=seconds["--timeout"],
            active_timeout=seconds["--active-timeout"],
            max_retries=max_retries,
            parameters=parameters,
            schedule=schedule,
            runner=runner,
            runner_options=runner_options,
            here=here,
        )
    except RequestError as error:
        check([*faults, *error.faults])
        raise
    check(faults)
    for warning in job_warnings(job):
        typer.echo(f"warning: {to_plain_line(warning)}", err=True)
    return job


def _parameters(given: Sequence[str], faults: list[Fault]) -> dict[str, str]:
    """Parameters by their names; faults say the names only, since a value may be private."""
    found: dict[str, str] = {}
    for number, text in enumerate(given, 1):
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            faults.append(Fault("-p", f"number {number}", "KEY=VALUE"))
        elif key in found:
            faults.append(Fault("-p", f"{key} twice", "each once"))
        else:
            found[key] = value
    return found


def _seconds(text: str | None, where: str, faults: list[Fault]) -> float | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return float(parse_seconds(text))
    except ValueError:
        allowed = "seconds, text such as 10m or 2h, or -1 for no limit"
        faults.append(Fault(where, repr(text), allowed))
        return None


def code_of(jobs: Sequence[Job]) -> int:
    """The exit code for jobs that have ended: that of the first that is not done."""
    return next((EXIT_CODES[job.status] for job in jobs if job.status != DONE), 0)
