"""``hyperplane asl create|start|describe|stop``: state machines on AWS Step Functions."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hyperplane.cli import asl_run
from hyperplane.cli.job_options import EXIT_CODES
from hyperplane.cli.output import JsonOption, write_json, write_rows
from hyperplane.cli.stop_signals import StopSignals
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.public_calls import stating_outcome
from hyperplane.jobs.job_progress import to_plain_line
from hyperplane.jobs.store.job_records import CANCELLED, DONE, FAILED, IN_PROGRESS, TIMED_OUT

if TYPE_CHECKING:
    from hyperplane.platforms.aws.session import AwsSession
    from hyperplane.platforms.aws.step_functions import StepFunctionsApi

#: Status of an execution -> that of a job.
_STATUSES = {
    "RUNNING": IN_PROGRESS,
    "PENDING_REDRIVE": IN_PROGRESS,
    "SUCCEEDED": DONE,
    "FAILED": FAILED,
    "TIMED_OUT": TIMED_OUT,
    "ABORTED": CANCELLED,
}
#: Seconds between two requests for the status.
_POLL_SECONDS = 5.0
#: Seconds in which Step Functions must report the end of an execution that was stopped.
_STOP_SECONDS = 60.0

RegionOption = Annotated[str | None, typer.Option(help="Region; that of the environment if none.")]
ProfileOption = Annotated[
    str | None, typer.Option(help="Profile of the configuration files of AWS.")
]
ExecutionArgument = Annotated[str, typer.Argument(help="ARN of an execution, as start prints it.")]


def create_machine(
    file: Annotated[Path, typer.Argument(help="A state machine in JSON.")],
    role: Annotated[
        str, typer.Option(metavar="ARN", help="Role with which Step Functions runs the machine.")
    ],
    name: Annotated[
        str | None, typer.Option(help="Name of the machine; that of the file by default.")
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Replace a machine of that name, and its role.")
    ] = False,
    region: RegionOption = None,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a state machine on AWS Step Functions from a file, and print its ARN.

    It is checked first, as with check. Repeated with the same file and role, nothing changes; a
    different machine of that name is a fault without --update.
    """
    from hyperplane.platforms.aws.account_check import check_credentials, check_role
    from hyperplane.platforms.aws.step_functions import NAME, PRINCIPAL

    faults: list[Fault] = []
    machine = asl_run.load_machine(file, faults, lenient=False)
    chosen = name or ("machine" if machine is None else machine.name)
    if not NAME.fullmatch(chosen):
        faults.append(_name_fault(chosen))
    with stating_outcome("nothing was created"):
        session, api = _open(region, profile)
        refused = check_credentials(session)
        faults += refused or check_role(session, "--role", role, PRINCIPAL)
        check(faults)
        assert machine is not None  # noqa: S101 - otherwise check has raised
        definition = json.dumps(machine.document, ensure_ascii=False)
        arn = api.create_machine(chosen, definition, role)
        if arn is None and update:
            arn = api.find_machine(chosen)
            if arn is not None:
                api.update_machine(arn, definition, role)
        if arn is None:
            allowed = "a name that no machine with another definition or role has"
            advice = "choose another name, or replace the machine with --update"
            raise RequestError([Fault("--name", repr(chosen), allowed, advice)])
    if as_json:
        write_json({"machine": arn})
    else:
        typer.echo(arn)


def start_execution(
    machine: Annotated[str, typer.Argument(help="Name or ARN of a machine.")],
    machine_input: Annotated[
        str | None, typer.Option("--input", metavar="FILE|JSON", help="Input of the execution.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="Name of the execution, under which it is started once; unique by default."
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for its end, and print its output.")
    ] = False,
    region: RegionOption = None,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start a state machine on AWS Step Functions, and print the ARN of the execution.

    A repeated request starts nothing, because executions have unique names. Exit code with --wait:
    0 done, 1 failed, 124 timed out, 130 cancelled or interrupted; Ctrl-C does not stop the
    execution.
    """
    from hyperplane.platforms.aws.step_functions import (
        MAX_INPUT_BYTES,
        NAME,
        ExecutionExistsError,
        region_of,
    )

    faults: list[Fault] = []
    text = json.dumps(asl_run.parse_input(machine_input, faults), ensure_ascii=False)
    chosen = name or f"hyperplane-{uuid.uuid4()}"
    if not NAME.fullmatch(chosen):
        faults.append(_name_fault(chosen))
    if len(text.encode()) > MAX_INPUT_BYTES:
        allowed = f"at most {MAX_INPUT_BYTES} bytes; write large values to a file in a bucket"
        faults.append(Fault("--input", f"{len(text.encode())} bytes", allowed))
    with stating_outcome("nothing was started"):
        check(faults)
        _, api = _open(region or region_of(machine), profile)
        arn = machine if region_of(machine) else api.find_machine(machine)
        if arn is None:
            allowed = "a name or an ARN of a machine of Step Functions in that region"
            raise RequestError([Fault("MACHINE", repr(machine), allowed)])
        try:
            execution = api.start(arn, chosen, text)
        except ExecutionExistsError as error:
            status = _status((api.read_execution(error.arn) or {}).get("status", "unknown"))
            allowed = f"a new name; the execution {error.arn} is {status}"
            raise RequestError([Fault("--name", repr(chosen), allowed)]) from error
    if not wait:
        if as_json:
            write_json({"execution": execution})
        else:
            typer.echo(execution)
        return
    typer.echo(execution, err=True)
    document = _wait(api, execution)
    if as_json:
        write_json(document)
    elif "output" in document:
        write_json(document["output"])
    else:
        typer.echo(_describe_end(document), err=True)
    if code := EXIT_CODES.get(document["status"], EXIT_CODES[CANCELLED]):
        raise typer.Exit(code)


def describe_execution(
    execution: ExecutionArgument, profile: ProfileOption = None, as_json: JsonOption = False
) -> None:
    """Show the state of an execution on AWS Step Functions, its output and its error."""
    document = _describe(_open_execution(execution, profile), execution)
    if as_json:
        write_json(document)
        return
    texts = {
        name: json.dumps(value, ensure_ascii=False) if name in ("input", "output") else str(value)
        for name, value in document.items()
    }
    write_rows([(name, to_plain_line(text)) for name, text in texts.items()])


def stop_execution(
    execution: ExecutionArgument,
    cause: Annotated[str, typer.Option(help="Reason that the service keeps.")] = "stopped by user",
    profile: ProfileOption = None,
) -> None:
    """End an execution on AWS Step Functions, and wait until the service confirms it.

    Exit code: 0 if it has ended, also before; 1 if the service does not confirm it.
    """
    api = _open_execution(execution, profile)
    before = _describe(api, execution)["status"]
    if before == IN_PROGRESS:
        api.stop(execution, cause)
    document = _wait(api, execution, _STOP_SECONDS)
    status = document["status"]
    typer.echo(f"{execution}: {status}" + " before" * (before != IN_PROGRESS))
    if status == IN_PROGRESS:
        raise typer.Exit(1)


def _open(region: str | None, profile: str | None) -> tuple[AwsSession, StepFunctionsApi]:
    from hyperplane.core.optional import need
    from hyperplane.platforms.aws.session import AwsSession
    from hyperplane.platforms.aws.step_functions import StepFunctionsApi

    need("boto3", "aws")
    session = AwsSession(region, profile, os.environ)
    return session, StepFunctionsApi(session)


def _open_execution(arn: str, profile: str | None) -> StepFunctionsApi:
    """Return the requests to the region of an execution; raise RequestError for another name."""
    from hyperplane.platforms.aws.step_functions import region_of

    region = region_of(arn)
    if region is None or ":execution:" not in arn:
        allowed = "the ARN of an execution, such as arn:aws:states:REGION:ACCOUNT:execution:M:NAME"
        raise RequestError([Fault("EXECUTION", repr(arn), allowed)])
    return _open(region, profile)[1]


def _describe(api: StepFunctionsApi, arn: str) -> dict[str, Any]:
    """Return an execution as a document; raise RequestError if there is none."""
    found = api.read_execution(arn)
    if found is None:
        allowed = "an execution that Step Functions has; it keeps them for 90 days after their end"
        raise RequestError([Fault("EXECUTION", repr(arn), allowed)])
    document: dict[str, Any] = {
        "execution": arn,
        "machine": found["stateMachineArn"],
        "status": _status(found["status"]),
    }
    for name, key in (("started", "startDate"), ("ended", "stopDate")):
        if isinstance(found.get(key), datetime):
            document[name] = found[key].isoformat(timespec="seconds")
    document |= {name: found[name] for name in ("error", "cause") if found.get(name)}
    document |= {name: _parse(found, name) for name in ("input", "output") if found.get(name)}
    return document


def _parse(found: Mapping[str, Any], name: str) -> Any:
    try:
        return json.loads(found[name])
    except ValueError:
        return found[name]


def _status(service_status: str) -> str:
    return _STATUSES.get(service_status, service_status.lower())


def _wait(api: StepFunctionsApi, arn: str, seconds: float = float("inf")) -> dict[str, Any]:
    """Wait until an execution ends, the time is over, or the user interrupts it."""
    with StopSignals() as signals:
        while True:
            document = _describe(api, arn)
            pause = min(_POLL_SECONDS, seconds)
            if document["status"] != IN_PROGRESS or pause <= 0:
                return document
            if signals.stop_requested.wait(pause):
                return document
            seconds -= pause


def _describe_end(document: Mapping[str, Any]) -> str:
    parts = [document["status"], *(document[key] for key in ("error", "cause") if key in document)]
    return to_plain_line(": ".join(map(str, parts)))


def _name_fault(name: str) -> Fault:
    allowed = "1 to 80 letters, digits, hyphens and underscores"
    return Fault("--name", repr(name), allowed, "give another --name")
