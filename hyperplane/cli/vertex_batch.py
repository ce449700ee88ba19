"""``hyperplane vertex batch-predict|describe|cancel``: batch predictions on Vertex AI."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hyperplane.cli.job_options import EXIT_CODES, INTERRUPTED
from hyperplane.cli.output import JsonOption, write_json, write_rows
from hyperplane.cli.stop_signals import StopSignals
from hyperplane.cli.vertex_options import (
    DryRunOption,
    GpusOption,
    GpuTypeOption,
    MachineTypeOption,
    ProjectOption,
    RegionOption,
    VersionArgument,
    check_account,
    choose_machine,
    describe_cost,
    find_version,
    open_requests,
    parse_version,
    read_settings,
)
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.public_calls import stating_outcome
from hyperplane.jobs.job_progress import to_plain_line
from hyperplane.jobs.store.job_records import CANCELLED, DONE, FAILED, IN_PROGRESS, TIMED_OUT

if TYPE_CHECKING:
    from hyperplane.platforms.gcp.vertex_predictions import PredictionJobsApi

JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="Name of a job, as batch-predict prints it.")
]
#: State of a job that has ended -> that of a job of hyperplane.
_STATUSES = {
    "JOB_STATE_SUCCEEDED": DONE,
    "JOB_STATE_PARTIALLY_SUCCEEDED": FAILED,
    "JOB_STATE_FAILED": FAILED,
    "JOB_STATE_EXPIRED": TIMED_OUT,
    "JOB_STATE_CANCELLED": CANCELLED,
}
#: Seconds between two requests for the state; in which Vertex AI must confirm the end of a job
#: that was cancelled; and for which a new job may be missing.
_POLL_SECONDS, _CANCEL_SECONDS, _MISSING_SECONDS = 5.0, 600.0, 60.0
_MOST_WORKERS = 1000


def batch_predict(
    model: VersionArgument,
    input: Annotated[  # noqa: A002
        list[str],
        typer.Option(metavar="URL", help="Input files, such as gs://bucket/*; may be repeated."),
    ],
    output: Annotated[
        str, typer.Option(metavar="URL", help="Folder in which a folder of predictions is made.")
    ],
    data_format: Annotated[
        str,
        typer.Option(
            metavar="json|csv|tf-record|tf-record-gzip|file-list",
            help="Format of the input files; json has one instance per line, as text has.",
        ),
    ] = "json",
    batch_size: Annotated[int, typer.Option(help="Rows of one call of the model.")] = 64,
    max_workers: Annotated[int, typer.Option(help="Largest number of machines.")] = 10,
    machine_type: MachineTypeOption = None,
    gpus: GpusOption = 0,
    gpu_type: GpuTypeOption = None,
    name: Annotated[
        str | None,
        typer.Option(help="Name of the job, under which it is submitted once; unique by default."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end.")] = False,
    region: RegionOption = None,
    project: ProjectOption = None,
    render: Annotated[
        bool, typer.Option("--render", help="Print the request; no account is needed.")
    ] = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Submit a batch prediction job to Vertex AI, and print its name.

    A second request with the same --name submits nothing. Exit code with --wait: 0 done, 1 failed,
    124 timed out, 130 cancelled or interrupted; Ctrl-C does not cancel the job.
    """
    from hyperplane.platforms.gcp.storage_check import (
        find_missing_bucket,
        find_missing_files,
        find_url_faults,
    )
    from hyperplane.platforms.gcp.vertex_predictions import (
        FORMATS,
        JOB_NAME,
        PREDICTION_SERVICE,
        BatchPrediction,
        NameTakenError,
        PredictionJobsApi,
    )

    chosen = name or f"hyperplane-{uuid.uuid4()}"
    faults = [*find_url_faults("input", input), *find_url_faults("output", [output])]
    wanted = parse_version(model, faults)
    if not JOB_NAME.fullmatch(chosen):
        allowed = "1 to 128 letters, digits, hyphens and underscores"
        faults.append(Fault("name", repr(chosen), allowed))
    if data_format not in FORMATS:
        faults.append(Fault("data_format", repr(data_format), f"one of {', '.join(FORMATS)}"))
    if batch_size < 1:
        faults.append(Fault("batch_size", str(batch_size), "at least 1"))
    if not 1 <= max_workers <= _MOST_WORKERS:
        faults.append(Fault("max_workers", str(max_workers), f"from 1 to {_MOST_WORKERS}"))
    options = {"machine_type": machine_type, "gpu_type": gpu_type}
    with stating_outcome("nothing was submitted"):
        settings = read_settings(faults, region=region, project=project, **options)
        machine = choose_machine(settings, gpus, gpu_type, faults)
        check(faults)
        plan = BatchPrediction(
            "", tuple(input), output, machine, data_format, batch_size, max_workers,
            settings.service_account,
        )  # fmt: skip
        if render:
            parent = f"projects/{settings.project or 'PROJECT'}/locations/{settings.region}"
            short, version = wanted
            resource = f"{parent}/models/{short}" + (f"@{version}" if version else "")
            body = plan._replace(resource=resource).build_request(chosen)
            write_json({"parent": parent, "body": body})
            return
        settings, requests = open_requests([], region=region, project=project, **options)
        faults = check_account(requests, settings, PREDICTION_SERVICE)
        found = find_version(requests, *wanted, faults)
        faults += find_missing_files(requests.session, "input", input)
        faults += find_missing_bucket(requests.session, "output", output)
        check(faults)
        assert found is not None  # noqa: S101 - otherwise check has raised
        body = plan._replace(resource=found.resource).build_request(chosen)
        typer.echo(describe_cost(settings, machine, f"up to {max_workers}"), err=True)
        if dry_run:
            write_json({"parent": requests.session.location(), "body": body})
            return
        api = PredictionJobsApi(requests)
        try:
            job, is_new = api.submit(body)
        except NameTakenError as error:
            allowed = f"a new name; the job {error.job} has another request"
            raise RequestError([Fault("name", repr(chosen), allowed)]) from error
    if not is_new:
        typer.echo(f"the job {chosen} was submitted before", err=True)
    if not wait:
        if as_json:
            write_json({"job": job, "is_new": is_new})
        else:
            typer.echo(job)
        return
    typer.echo(job, err=True)
    document = _wait(api, job)
    _write(document, as_json=as_json)
    if code := EXIT_CODES.get(document["status"], INTERRUPTED):
        raise typer.Exit(code)


def describe_job(
    job: JobArgument, project: ProjectOption = None, as_json: JsonOption = False
) -> None:
    """Show the state of a batch prediction job, its error, and where its predictions are."""
    api = _open_job(job, project)
    _write(_read(api, job), as_json=as_json)


def cancel_job(job: JobArgument, project: ProjectOption = None) -> None:
    """Cancel a batch prediction job, and wait until Vertex AI confirms it.

    Exit code: 0 if it has ended, also before; 1 if Vertex AI does not confirm it.
    """
    api = _open_job(job, project)
    with _naming(job):
        before = _read(api, job)["status"]
        if before == IN_PROGRESS:
            api.cancel(job)
    status = _wait(api, job, _CANCEL_SECONDS)["status"]
    typer.echo(f"{job}: {status}" + " before" * (before != IN_PROGRESS))
    if status == IN_PROGRESS:
        raise typer.Exit(1)


def _open_job(job: str, project: str | None) -> PredictionJobsApi:
    """Return the requests to the region of a job; raise RequestError for another name."""
    from hyperplane.platforms.gcp.vertex_predictions import RESOURCE, PredictionJobsApi

    match = RESOURCE.fullmatch(job)
    if match is None:
        allowed = "a name such as projects/NUMBER/locations/REGION/batchPredictionJobs/NUMBER"
        raise RequestError([Fault("job", repr(job), allowed)])
    _, requests = open_requests([], region=match["region"], project=project)
    return PredictionJobsApi(requests)


def _read(api: PredictionJobsApi, job: str) -> dict[str, Any]:
    """Return a job as a document; raise RequestError if there is none."""
    found = api.read(job)
    if found is None:
        raise RequestError([Fault("job", repr(job), "a job that Vertex AI has")])
    return _describe(found)


def _describe(job: dict[str, Any]) -> dict[str, Any]:
    parts = str(job["name"]).split("/")
    page = (
        f"https://console.cloud.google.com/vertex-ai/locations/{parts[3]}/batch-predictions/"
        f"{parts[5]}?project={parts[1]}"
    )
    document: dict[str, Any] = {
        "job": job["name"],
        "status": _STATUSES.get(str(job.get("state", "")), IN_PROGRESS),
        "state": str(job.get("state", "")).removeprefix("JOB_STATE_"),
    }
    document |= {
        name: job[key]
        for name, key in (("started", "startTime"), ("ended", "endTime"))
        if key in job
    }
    failures = [job.get("error", {}), *job.get("partialFailures", ())]
    if messages := [str(each["message"]) for each in failures if each.get("message")]:
        document["error"] = "; ".join(messages)
    counts = job.get("completionStats", {})
    for name, key in (("predicted", "successfulCount"), ("failed", "failedCount")):
        if key in counts:
            document[name] = int(counts[key])
    if output := job.get("outputInfo", {}).get("gcsOutputDirectory"):
        document["output"] = output
    return {**document, "page": page}


def _write(document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        write_json(document)
    else:
        write_rows([(name, to_plain_line(str(value))) for name, value in document.items()])


def _wait(api: PredictionJobsApi, job: str, seconds: float = float("inf")) -> dict[str, Any]:
    """Wait until a job ends, the time is over, or the user interrupts it.

    A job that Vertex AI does not have is awaited for a minute, as the lists of new jobs are. A
    failure of the network does not end the wait, because the job runs on.
    """
    from hyperplane.platforms.gcp.errors import NOT_FOUND, GcpError, GcpRequestError, is_retryable

    shown, seen, until = "", time.monotonic(), time.monotonic() + seconds
    document, is_silent = None, False
    with _naming(job), StopSignals() as signals:
        while True:
            found = None
            try:
                found = api.read(job)
                is_silent = False
            except GcpError as error:
                if not is_retryable(error):
                    raise
                if not is_silent:
                    typer.echo(f"{error}; the job may run on, its state is read again", err=True)
                is_silent, seen = True, time.monotonic()
            if found is not None:
                document, seen = _describe(found), time.monotonic()
                if document["state"] != shown:
                    shown = document["state"]
                    typer.echo(shown.lower(), err=True)
                if document["status"] != IN_PROGRESS:
                    return document
            elif time.monotonic() - seen > _MISSING_SECONDS:
                raise GcpRequestError(f"Vertex AI does not have the job {job}", NOT_FOUND)
            pause = min(_POLL_SECONDS, until - time.monotonic())
            if pause <= 0 or signals.stop_requested.wait(pause):
                return document or _read(api, job)


@contextmanager
def _naming(job: str) -> Iterator[None]:
    """Name a job in errors of requests for it."""
    from hyperplane.platforms.gcp.errors import GcpError

    try:
        yield
    except GcpError as error:
        text = str(error)
        raise GcpError(text if job in text else f"{job}: {text}") from error
