"""``hyperplane asl``: state machines in the Amazon States Language, here and on Step Functions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hyperplane.cli import asl_run, asl_service
from hyperplane.cli.job_options import FileArgument, ParametersOption, build_job
from hyperplane.cli.output import JsonOption, write_json
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.units import plural

app = typer.Typer(
    no_args_is_help=True,
    help="Check, run and export state machines in the Amazon States Language; create, start, "
    "describe and stop them on AWS Step Functions.",
)

MachineArgument = Annotated[Path, typer.Argument(help="A state machine in JSON.")]
LenientOption = Annotated[
    bool,
    typer.Option(
        "--lenient", help="Report unreachable states and repeated names as warnings, not as faults."
    ),
]


@app.command("check")
def check_file(
    file: MachineArgument, lenient: LenientOption = False, as_json: JsonOption = False
) -> None:
    """Check a state machine, and report all its faults with their lines.

    Exit code: 0 if it has none, else 2. With --lenient, faults that do not prevent a run are
    warnings.
    """
    from hyperplane.asl.task_registry import iterate_states

    faults: list[Fault] = []
    machine = asl_run.load_machine(file, faults, lenient=lenient)
    check(faults)
    assert machine is not None  # noqa: S101 - otherwise check has raised
    count = sum(1 for _ in iterate_states(machine.document))
    if as_json:
        write_json({
            "name": machine.name, "states": count,
            "warnings": [str(doubt) for doubt in machine.doubts],
        })  # fmt: skip
        return
    warnings = plural(len(machine.doubts), "warning") if machine.doubts else "no faults"
    typer.echo(f"{file}: {plural(count, 'state')}, {warnings}")


@app.command("run")
def run_file(
    file: MachineArgument,
    machine_input: Annotated[
        str | None,
        typer.Option("--input", metavar="FILE|JSON", help="Input of the state machine."),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=TASK",
            help="The task of a resource, of a function or job that it names, or of a state, as "
            "module:function or as a program with its arguments; may be repeated.",
        ),
    ] = None,
    task_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="YAML or JSON file with a mapping of names to tasks."),
    ] = None,
    batch_folder: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Run the commands of AWS Batch jobs here, as programs in this folder.",
        ),
    ] = None,
    batch_logs: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="With --batch-folder: folder for what they print."),
    ] = None,
    lenient: LenientOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a state machine here, in the foreground; print its output as JSON.

    Exit code: 0 done, 1 failed, 124 timed out, 130 cancelled. Ctrl-C, SIGTERM and closing the
    terminal cancel it.
    """
    if batch_logs is not None and batch_folder is None:
        allowed = "the folder of the programs whose output --batch-logs keeps"
        check([Fault("--batch-folder", "nothing", allowed)])
    batch = {"folder": batch_folder, "logs": batch_logs}
    asl_run.run_machine_file(
        file, machine_input, task or (), as_json=as_json, lenient=lenient, task_file=task_file,
        batch=None if batch_folder is None else {k: v for k, v in batch.items() if v is not None},
    )  # fmt: skip


@app.command()
def export(
    file: FileArgument,
    parameter: ParametersOption = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="Write the machine to this new file."),
    ] = None,
) -> None:
    """Convert a pipeline to a state machine of AWS Step Functions, whose tasks are Batch jobs.

    A step with step_functions is that task instead. Nothing is sent to AWS.
    """
    # Its import would delay all other commands.
    from hyperplane.jobs.pipeline_sizes import with_sizes

    job = with_sizes(build_job(file, parameter=parameter, runs_here=False))
    text = json.dumps(job.pipeline.to_asl(job.parameters), indent=2, ensure_ascii=False)
    if out is None:
        typer.echo(text)
        return
    try:
        with out.open("x", encoding="utf-8") as opened:
            opened.write(f"{text}\n")
    except OSError as error:
        allowed = "a new file in an existing folder"
        raise RequestError([Fault("--out", str(out), allowed, error.strerror or "")]) from error
    typer.echo(str(out))


app.command("create")(asl_service.create_machine)
app.command("start")(asl_service.start_execution)
app.command("describe")(asl_service.describe_execution)
app.command("stop")(asl_service.stop_execution)
