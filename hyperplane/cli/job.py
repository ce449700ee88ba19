"""``hyperplane job``: run, submit, watch and cancel pipeline jobs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hyperplane.cli import (
    asl_run,
    job_artifacts,
    job_clean,
    job_inspect,
    job_rehearse,
    job_render,
    job_schedule,
    job_show,
)
from hyperplane.cli.job_options import (
    ActiveOption,
    FileArgument,
    IdArgument,
    IdsArgument,
    NameOption,
    ParametersOption,
    RetriesOption,
    RunnerOption,
    RunnerOptionsOption,
    ScheduleOption,
    TimeoutOption,
    build_job,
    exit_code_for,
)
from hyperplane.cli.job_screen import job_document, show_end
from hyperplane.cli.options import parse_settings
from hyperplane.cli.output import JsonOption, write_json
from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import stating_outcome
from hyperplane.jobs import job_control
from hyperplane.jobs.job_names import find_jobs
from hyperplane.jobs.job_progress import to_plain_line
from hyperplane.jobs.runners.registry import describe_cost, describe_quota, resolve_options
from hyperplane.jobs.store.job_records import OPEN, Job
from hyperplane.jobs.store.jobs_home import open_store

if TYPE_CHECKING:
    from hyperplane.jobs.store.job_store import JobStore

app = typer.Typer(
    no_args_is_help=True,
    help="Run, submit, watch and cancel pipeline jobs.\n\n"
    "Exit code of run, watch and --wait: 0 done, 1 failed, 124 timed out, 130 cancelled.",
)

WaitOption = Annotated[
    bool, typer.Option("--wait", help="Show the progress of the job until it has ended.")
]


@app.command()
def run(
    file: FileArgument,
    parameter: ParametersOption = None,
    name: NameOption = None,
    timeout: TimeoutOption = None,
    active_timeout: ActiveOption = None,
    max_retries: RetriesOption = None,
    schedule: ScheduleOption = "",
    runner: RunnerOption = "local",
    runner_option: RunnerOptionsOption = None,
    machine_input: Annotated[
        str | None,
        typer.Option(
            "--input", metavar="FILE|JSON", help="For *.asl.json: input of the state machine."
        ),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=TASK",
            help="For *.asl.json: the task of a resource or of a name in it, as module:function "
            "or as a program with its arguments; may be repeated. See hyperplane asl run.",
        ),
    ] = None,
    lenient: Annotated[
        bool,
        typer.Option(
            "--lenient", help="For *.asl.json: accept unreachable states and repeated names."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a job, or a state machine *.asl.json, in the foreground.

    Ctrl-C, SIGTERM and closing the terminal cancel it; a second Ctrl-C kills it immediately.
    """
    pipeline_options = {
        "--parameter": parameter, "--name": name, "--timeout": timeout, "--schedule": schedule,
        "--active-timeout": active_timeout, "--max-retries": max_retries,
        "--runner": None if runner == "local" else runner, "--runner-option": runner_option,
    }  # fmt: skip
    machine_options = {"--input": machine_input, "--task": task, "--lenient": lenient or None}
    is_machine = asl_run.is_machine(file)
    check(
        Fault(option, "", f"only for {'a pipeline' if is_machine else 'a state machine'}")
        for option, value in (pipeline_options if is_machine else machine_options).items()
        if value not in (None, "")
    )
    if is_machine:
        asl_run.run_machine_file(file, machine_input, task or (), as_json=as_json, lenient=lenient)
        return
    options, faults = parse_settings(runner_option or (), "--runner-option")
    with stating_outcome("nothing was started"):
        job = build_job(
            file, parameter=parameter, name=name, timeout=timeout, active_timeout=active_timeout,
            max_retries=max_retries, schedule=schedule, runner=runner, runner_options=options,
            other_faults=faults,
        )  # fmt: skip
    run_to_end(job, options, as_json)


def run_to_end(job: Job, runner_options: Mapping[str, Any], as_json: bool = False) -> None:
    """Run a job in the foreground, print its result, and exit with the matching code."""
    store = open_store()
    from hyperplane.cli.job_foreground import run_in_foreground  # needs the extra jobs

    ended = asyncio.run(run_in_foreground(store, job, runner_options, quiet=as_json))
    _finish([ended], store, as_json)


@app.command()
def submit(
    file: FileArgument,
    parameter: ParametersOption = None,
    name: NameOption = None,
    timeout: TimeoutOption = None,
    active_timeout: ActiveOption = None,
    max_retries: RetriesOption = None,
    schedule: ScheduleOption = "",
    runner: RunnerOption = "local",
    runner_option: RunnerOptionsOption = None,
    no_overlap: Annotated[
        bool,
        typer.Option(
            "--no-overlap",
            help="Submit nothing while an earlier run of the schedule is unfinished.",
        ),
    ] = False,
    wait: WaitOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the steps; submit nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Submit a job, which continues when this terminal is closed; print its IDs."""
    options, faults = parse_settings(runner_option or (), "--runner-option")
    if no_overlap and not schedule:
        faults.append(Fault("--no-overlap", "no schedule", "--no-overlap with --schedule NAME"))
    with stating_outcome("nothing was submitted"):
        job = build_job(
            file, parameter=parameter, name=name, timeout=timeout, active_timeout=active_timeout,
            max_retries=max_retries, schedule=schedule, runner=runner, runner_options=options,
            other_faults=faults,
        )  # fmt: skip
    if dry_run:
        job_render.show_local(job, as_json)
        _show_cost(job, options, as_json)
        if not as_json:
            for line in describe_quota(job, resolve_options(job.runner, options)):
                typer.echo(f"quota  {line}")
        return
    store = open_store()
    if no_overlap and (earlier := store.find(schedule=schedule, statuses=OPEN, limit=1)):
        job_control.ensure_supervisor(store)
        if as_json:
            write_json({"id": None, "run_id": None, "going_on": earlier[0].id})
        else:
            typer.echo(
                f"nothing submitted: job {earlier[0].id} of schedule {schedule} is unfinished"
            )
        return
    # The output has only the IDs.
    _show_cost(job, options, as_json, err=True)
    # warn=False, because build_job has printed the warnings.
    submitted = job_control.submit_job(job, warn=False, runner_options=options)
    if as_json and not wait:
        write_json({"id": submitted.id, "run_id": submitted.run_id})
    elif not as_json:
        typer.echo(f"job  {submitted.id}\nrun  {submitted.run_id}")
        if not wait:
            _show_next_command(submitted.id)
    if wait:
        _watch(store, [submitted.id], as_json)


def _show_next_command(job_id: str) -> None:
    """Print the name of the run and the command that follows it, on standard error."""
    submitted = open_store().get_many([job_id]).get(job_id)
    if submitted is None:
        return
    run_name = to_plain_line(submitted.run_name)
    typer.echo(f"{run_name} is submitted; next: hyperplane job watch {job_id[:8]}", err=True)


def _show_cost(job: Job, options: Mapping[str, Any], as_json: bool, err: bool = False) -> None:
    if not as_json:
        for line in describe_cost(job, resolve_options(job.runner, options)):
            typer.echo(f"cost  {line}", err=err)


app.command("list")(job_inspect.list_jobs)
app.command("show")(job_show.show_job)
app.command()(job_show.compare)
app.command()(job_clean.clean)


@app.command()
def watch(ids: IdsArgument, as_json: JsonOption = False) -> None:
    """Show the progress of jobs until they have ended; Ctrl-C does not stop the jobs.

    Exit code: that of the first job that is not done.
    """
    store = open_store()
    _watch(store, [job.id for job in find_jobs(store, ids)], as_json)


app.command()(job_inspect.logs)
app.command("artifacts")(job_artifacts.show_artifacts)
app.command("artifact")(job_artifacts.fetch_artifact)


@app.command()
def cancel(ids: IdsArgument, as_json: JsonOption = False) -> None:
    """Cancel jobs: end all processes of their steps."""
    store = open_store()
    jobs = find_jobs(store, ids)
    cancelled = [job_control.cancel(job.id, by="with hyperplane job cancel") for job in jobs]
    if as_json:
        write_json([
            {"id": job.id, "status": job.status if job.processed else "cancelled"}
            for job in cancelled
        ])  # fmt: skip
        return
    for job in cancelled:
        outcome = f"had already ended: {job.status}" if job.processed else "is cancelled"
        typer.echo(f"{to_plain_line(job.run_name)} ({job.id[:8]}) {outcome}")


@app.command()
def resume(id_: IdArgument, wait: WaitOption = False, as_json: JsonOption = False) -> None:
    """Continue a job that has ended; finished steps do not run again."""
    submitted = job_control.resume(id_)
    if as_json and not wait:
        write_json({"id": submitted.id, "run_id": submitted.run_id})
    elif not as_json:
        typer.echo(f"job  {submitted.id}\nrun  {submitted.run_id}")
    if wait:
        store = open_store()
        _watch(store, [submitted.id], as_json)


app.command()(job_render.render)
app.command("rehearse")(job_rehearse.rehearse_job)
app.command()(job_schedule.schedule)


def _watch(store: JobStore, ids: list[str], as_json: bool) -> None:
    from hyperplane.cli.job_foreground import watch_until_end  # needs the extra jobs

    _finish(watch_until_end(store, ids, quiet=as_json), store, as_json)


def _finish(jobs: list[Job], store: JobStore, as_json: bool) -> None:
    """Print the results of ended jobs, and exit with the matching code."""
    sys.stdout.flush()
    if as_json:
        shown = [job_document(job, store) for job in jobs]
        write_json(shown[0] if len(shown) == 1 else shown)
    for job in jobs:
        show_end(job)
    if code := exit_code_for(jobs):
        raise typer.Exit(code)
