"""``hyperplane job schedule``: crontab lines and manifests that submit a job regularly."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import dask.config
import typer

from hyperplane import config
from hyperplane.cli.job_options import ParametersOption, build_job
from hyperplane.cli.output import JsonOption, new_table, show, write_json
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.units import format_local_time
from hyperplane.jobs import schedules
from hyperplane.jobs.cron import CronExpression, parse_cron
from hyperplane.jobs.execution.step_environment import find_secrets
from hyperplane.jobs.exporters import cron_job
from hyperplane.jobs.schedules import Schedule
from hyperplane.jobs.store.job_records import Job
from hyperplane.jobs.store.jobs_home import jobs_folder, open_store

_RUNNERS = ("cron", "kubernetes")


def schedule(
    file: Annotated[
        Path | None, typer.Argument(help="A pipeline file, or a single script or notebook.")
    ] = None,
    cron: Annotated[
        str | None,
        typer.Option(
            metavar="'*/30 * * * *'", help="Times of the runs, in the five fields of crontab."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the schedule; default: name of the pipeline.")
    ] = None,
    parameter: ParametersOption = None,
    no_overlap: Annotated[
        bool, typer.Option("--no-overlap", help="Start no run while an earlier one is unfinished.")
    ] = False,
    runner: Annotated[
        str, typer.Option(metavar="cron|kubernetes", help="Scheduler that submits the runs.")
    ] = "cron",
    image: Annotated[str, typer.Option(help="For kubernetes: image of the container.")] = "",
    folder: Annotated[
        str, typer.Option(help="For kubernetes: path of the pipeline's root in the container.")
    ] = "",
    install: Annotated[
        bool, typer.Option("--install", help="Add the schedule to this user's crontab.")
    ] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the schedule of this --name from the crontab.")
    ] = False,
    listed: Annotated[
        bool, typer.Option("--list", help="Show the schedules in the crontab.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print a crontab line or a manifest that submits a job regularly, or install the line."""
    ignored = {
        "file": file, "--cron": cron, "-p": parameter, "--no-overlap": no_overlap,
        "--name": name if listed else None,
    }  # fmt: skip
    faults = [
        *_faults(file, cron, name, runner, install, remove, listed, image or folder),
        *(
            Fault(option, "", f"not with {'--list' if listed else '--remove'}")
            for option, value in ignored.items()
            if value and listed != remove
        ),
    ]
    if listed or remove or file is None or cron is None:
        check(faults)
    if listed:
        _list(as_json)
    elif remove and name is not None:
        schedules.remove(name)
        write_json({"removed": name}) if as_json else typer.echo(f"{name} is removed")
    elif file is not None and cron is not None:
        when, cron_faults = _parse_times(cron)
        faults += cron_faults
        faults += [] if name is None else schedules.name_faults(name)
        if runner == "kubernetes":
            days_of = None if cron_faults else when.text
            faults += cron_job.find_faults(name or "", days_of, image)
        runs_here = runner == "cron"
        job = build_job(file, parameter=parameter, runs_here=runs_here, other_faults=faults)
        schedule_name = job.pipeline.name if name is None else name
        check(schedules.name_faults(schedule_name))
        if when.warning:
            typer.echo(f"warning: {when.warning}", err=True)
        if runner == "kubernetes":
            _print_manifest(job, file, schedule_name, when.text, no_overlap, image, folder, as_json)
        else:
            _print_or_install(job, file, schedule_name, when.text, no_overlap, install, as_json)


def _parse_times(cron: str) -> tuple[CronExpression, list[Fault]]:
    """Parse ``--cron`` into an expression and faults."""
    try:
        return parse_cron(cron), []
    except RequestError as error:
        return CronExpression(cron), list(error.faults)


def _faults(
    file: Path | None,
    cron: str | None,
    name: str | None,
    runner: str,
    install: bool,
    remove: bool,
    listed: bool,
    container: str,
) -> list[Fault]:
    faults = []
    if install + remove + listed > 1:
        faults.append(Fault("--install, --remove, --list", "", "only one of them may be given"))
    if runner not in _RUNNERS:
        faults.append(Fault("--runner", repr(runner), f"one of {', '.join(_RUNNERS)}"))
    elif runner != "cron" and (install or remove or listed):
        advice = "use kubectl apply with the manifest"
        faults.append(Fault("--install, --remove, --list", "", "only with --runner cron", advice))
    elif runner == "cron" and container:
        faults.append(Fault("--image, --folder", "", "only with --runner kubernetes"))
    if remove and name is None:
        faults.append(Fault("--name", "nothing", "the name of the schedule to remove"))
    if not (remove or listed):
        if file is None:
            faults.append(Fault("file", "nothing", "a pipeline file, or a script or notebook"))
        if cron is None:
            faults.append(Fault("--cron", "nothing", "five fields, such as '*/30 * * * *'"))
    return faults


def _print_or_install(
    job: Job, file: Path, name: str, cron: str, no_overlap: bool, install: bool, as_json: bool
) -> None:
    program = str(Path(sys.executable).with_name("hyperplane"))
    argv = [program, "job", "submit", "--schedule", name, "--name", name]
    argv += ["--no-overlap"] * no_overlap
    argv += [word for key, value in job.parameters.items() for word in ("-p", f"{key}={value}")]
    log = jobs_folder() / f"schedule-{name}.log"
    entry = Schedule(
        name, cron, (*argv, str(file.absolute())), job.pipeline.root, _cron_environment(), str(log)
    )
    line = schedules.crontab_line(entry)
    _warn_about_environment(job)
    replaced = schedules.install(entry) if install else False
    if as_json:
        write_json({"name": name, "cron": cron, "line": line, "installed": install})
    elif install:
        typer.echo(f"{name} is installed" + (" and replaces the earlier line" * replaced))
    else:
        typer.echo(line)


def _cron_environment() -> tuple[tuple[str, str], ...]:
    """Return variables that jobs need and cron does not set: the path, and the folder of jobs."""
    folder = str(Path(sys.executable).parent)
    return (("PATH", f"{folder}:/usr/local/bin:/usr/bin:/bin"),
            ("DASK_HYPERPLANE__JOBS__HOME", str(jobs_folder())))  # fmt: skip


def _warn_about_environment(job: Job) -> None:
    """Warn about secrets and a store that are set here but not in the environment of cron."""
    settings = config.jobs()
    names = sorted({name for step in job.pipeline.steps for name in step.secrets})
    _, missing = find_secrets(names, {}, settings.secrets)
    for name in missing:
        advice = f"write it to the file {settings.secrets}/{name}"
        typer.echo(f"warning: the secret {name} is not set under cron; {advice}", err=True)
    from_variables = dask.config.collect_env().get("hyperplane", {}).get("jobs", {})
    if settings.store and "store" in from_variables:
        advice = "write hyperplane.jobs.store to a file of Dask's configuration"
        typer.echo(f"warning: the store of this terminal is not set under cron; {advice}", err=True)


def _print_manifest(
    job: Job,
    file: Path,
    name: str,
    cron: str,
    no_overlap: bool,
    image: str,
    folder: str,
    as_json: bool,
) -> None:
    root = Path(job.pipeline.root)
    path = file.absolute()
    relative_file = str(path.relative_to(root)) if path.is_relative_to(root) else str(file)
    argv = ["hyperplane", "job", "run", "--schedule", name, "--name", name]
    argv += [word for key, value in job.parameters.items() for word in ("-p", f"{key}={value}")]
    text = cron_job.render_cron_job(
        name, cron, [*argv, relative_file], image=image, folder=folder, overlap=not no_overlap
    )
    if as_json:
        write_json({"name": name, "cron": cron, "manifest": text})
    else:
        typer.echo(text, nl=False)


def _list(as_json: bool) -> None:
    lines = schedules.read_installed()
    store = open_store()
    last = {name: next(iter(store.find(schedule=name, limit=1)), None) for name in lines}
    if as_json:
        write_json([
            {"name": name, "cron": " ".join(line.split()[:5]), "line": line,
             "last": job.as_dict() if (job := last[name]) else None}
            for name, line in lines.items()
        ])  # fmt: skip
        return
    if not lines:
        typer.echo("no schedule is installed")
        return
    table = new_table(["schedule", "when", "last run", "status"], [])
    for name, line in lines.items():
        job = last[name]
        at = format_local_time(job.submitted, "%Y-%m-%d %H:%M") if job else ""
        table.add_row(name, " ".join(line.split()[:5]), at, job.status if job else "")
    show(table)
