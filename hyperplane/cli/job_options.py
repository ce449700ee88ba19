"""Options and exit codes that the commands of ``hyperplane job`` share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.units import parse_seconds
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.job_control import job_warnings, new_job
from hyperplane.jobs.job_progress import to_plain_line
from hyperplane.jobs.runners.registry import RUNNERS
from hyperplane.jobs.store.job_records import CANCELLED, DONE, FAILED, TIMED_OUT, Job

#: 124 is that of the program ``timeout``, 130 that of a shell whose program was interrupted.
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
        help="A parameter of the job; may be repeated.",
    ),
]
NameOption = Annotated[str | None, typer.Option(help="Name of the job; unique by default.")]
TimeoutOption = Annotated[
    str | None,
    typer.Option(
        metavar="SECONDS",
        help="Time limit from the submission, such as 600 or 10m; -1 for no limit.",
    ),
]
ActiveOption = Annotated[
    str | None,
    typer.Option(metavar="SECONDS", help="Time limit from the start of the job; -1 for no limit."),
]
RetriesOption = Annotated[int | None, typer.Option(help="Maximum number of retries, 0 to 10.")]
RunnerOption = Annotated[
    str,
    typer.Option(
        metavar="|".join(RUNNERS.built_in),
        help="Runner of the steps; local is this machine. Other packages may add runners.",
    ),
]
RunnerOptionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--runner-option",
        "--option",
        metavar="NAME=VALUE",
        help="For kubernetes: root, or a setting of the engine such as image. For aws-batch: a "
        "setting of hyperplane.runners.aws_batch such as queue. For vertex, cloud-run, "
        "glue, emr and emr-serverless: one of hyperplane.runners.vertex, cloud_run, glue, emr or "
        "emr_serverless such as region. May be repeated.",
    ),
]
ScheduleOption = Annotated[
    str, typer.Option(metavar="NAME", help="Mark the job as a run of this schedule.")
]
_JOB_FORMS = (
    "an ID or its beginning, nightly#12 for a run of a pipeline, the name of a pipeline or job for "
    "your newest run of it, or latest"
)
IdArgument = Annotated[str, typer.Argument(metavar="JOB", help=f"A job: {_JOB_FORMS}.")]
IdsArgument = Annotated[
    list[str], typer.Argument(metavar="JOB...", help=f"Jobs, each one {_JOB_FORMS}.")
]


def build_job(
    file: Path | Pipeline,
    *,
    parameter: Sequence[str] | None = None,
    name: str | None = None,
    timeout: str | None = None,
    active_timeout: str | None = None,
    max_retries: int | None = None,
    schedule: str = "",
    runner: str = "local",
    runner_options: Mapping[str, Any] | None = None,
    runs_here: bool = True,
    other_faults: Sequence[Fault] = (),
) -> Job:
    """Return the job of the given options; print its warnings to standard error.

    ``runs_here`` is whether its steps run on this machine. ``other_faults`` are those of options
    that the caller has parsed.

    Raises
    ------
    RequestError
        With all faults of the options and the pipeline.
    """
    faults = list(other_faults)
    parameters = _parse_parameters(parameter or (), faults)
    seconds = {
        "--timeout": _parse_time_limit(timeout, "--timeout", faults),
        "--active-timeout": _parse_time_limit(active_timeout, "--active-timeout", faults),
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
            check_machine=runs_here,
        )
    except RequestError as error:
        check([*faults, *error.faults])
        raise
    check(faults)
    for warning in job_warnings(job):
        typer.echo(f"warning: {to_plain_line(warning)}", err=True)
    return job


def _parse_parameters(texts: Sequence[str], faults: list[Fault]) -> dict[str, str]:
    """Return parameters by name; faults show no values, which may be private."""
    parameters: dict[str, str] = {}
    for number, text in enumerate(texts, 1):
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            faults.append(Fault("-p", "", f"number {number} is not KEY=VALUE"))
        elif key in parameters:
            faults.append(Fault("-p", "", f"{key} is given twice"))
        else:
            parameters[key] = value
    return parameters


def _parse_time_limit(text: str | None, where: str, faults: list[Fault]) -> float | None:
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


def exit_code_for(jobs: Sequence[Job]) -> int:
    """Return the exit code of the first job that is not done, or 0."""
    return next((EXIT_CODES[job.status] for job in jobs if job.status != DONE), 0)
