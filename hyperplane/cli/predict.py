"""``hyperplane predict``: predict files or JSON instances with a saved model."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import hyperplane
from hyperplane.cli.output import JsonOption, write_json
from hyperplane.cli.storage import parse_options
from hyperplane.core.active_cluster import count_threads
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.public_calls import stating_outcome

if TYPE_CHECKING:
    from hyperplane.ml.prediction.batch import PreparedBatch
    from hyperplane.ml.prediction.rows import Predictions

_PANEL_BATCH, _PANEL_LOCAL = "Files", "Instances"


def predict(
    model: Annotated[
        str,
        typer.Option(
            help="File or folder of a saved model; or a model of a registry, as REGISTRY/NAME or "
            "REGISTRY/NAME/VERSION.",
        ),
    ],
    input: Annotated[  # noqa: A002
        list[str] | None,
        typer.Option(
            help="Input file, glob, folder or URL; may be repeated.", rich_help_panel=_PANEL_BATCH
        ),
    ] = None,
    output: Annotated[
        str | None, typer.Option(help="Folder of the outputs.", rich_help_panel=_PANEL_BATCH)
    ] = None,
    data_format: Annotated[
        str | None,
        typer.Option(
            help="Format of the input files; by default that of their suffix.",
            metavar="json|csv|parquet|tf-record",
            rich_help_panel=_PANEL_BATCH,
        ),
    ] = None,
    max_workers: Annotated[
        int,
        typer.Option(
            help="Maximum number of files that are predicted at the same time.",
            rich_help_panel=_PANEL_BATCH,
        ),
    ] = 10,
    json_instances: Annotated[
        str | None,
        typer.Option(
            help="File with one JSON instance per line, or - for standard input; the predictions "
            "are printed, one per line.",
            metavar="FILE",
            rich_help_panel=_PANEL_LOCAL,
        ),
    ] = None,
    json_request: Annotated[
        str | None,
        typer.Option(
            help='File with a request, {"instances": [...]}, or - for standard input; the response '
            "is printed, as a server sends it.",
            metavar="FILE",
            rich_help_panel=_PANEL_LOCAL,
        ),
    ] = None,
    text_instances: Annotated[
        str | None,
        typer.Option(
            help="File with one text per line, or - for standard input; the predictions are "
            "printed, one per line.",
            metavar="FILE",
            rich_help_panel=_PANEL_LOCAL,
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Rows of one call of the model.")] = 64,
    columns: Annotated[
        str | None,
        typer.Option(
            help="Columns that the model gets, separated by commas; by default those that it was "
            "fitted with."
        ),
    ] = None,
    trusted: Annotated[
        bool, typer.Option("--trusted", help="Load a model that can run code of its author.")
    ] = False,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="Option of the file system; may be repeated. See storage."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Predict the rows of files with a saved model, or print predictions of JSON instances.

    Without a cluster it starts as many local processes as this machine has cores, at most
    --max-workers and one per file. An interrupted prediction continues with the same command.
    """
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    options = parse_options(option or [])
    arguments: dict[str, Any] = {
        "batch_size": batch_size,
        "columns": names,
        "trusted": trusted,
        "storage_options": options or None,
    }
    local = {
        "--json-instances": json_instances,
        "--json-request": json_request,
        "--text-instances": text_instances,
    }
    given = {name: file for name, file in local.items() if file is not None}
    with stating_outcome("nothing was predicted"):
        check(_find_option_faults(input, output, list(given)))
    for name, file in given.items():
        _print_predictions(model, name, file, arguments, as_json=as_json)
        return
    from hyperplane.ml.prediction.batch import prepare_batch

    batch = prepare_batch(
        model, input, output, data_format=data_format, max_workers=max_workers, **arguments
    )
    with _local_cluster(batch):
        result = batch.run()
    if as_json:
        write_json(asdict(result))
    else:
        typer.echo(str(result))
    refuses_all = result.rows and result.errors == result.rows  # such as a column of another type
    if refuses_all and not result.finished_before:
        raise typer.Exit(1)


def _find_option_faults(
    urls: list[str] | None, output: str | None, local: list[str]
) -> list[Fault]:
    """Return the faults of options that exclude or require each other."""
    if not local:
        advice = "or give --json-instances, --json-request or --text-instances to print predictions"
        return [
            Fault(name, "nothing", allowed, advice)
            for name, value, allowed in (
                ("--input", urls, "input files"),
                ("--output", output, "a folder for the outputs"),
            )
            if not value
        ]
    faults = [
        Fault(name, repr(value), f"no value with {local[0]}, which prints predictions")
        for name, value in (("--input", urls), ("--output", output))
        if value
    ]
    return faults + [Fault(name, "a file", f"no value with {local[0]}") for name in local[1:]]


def _print_predictions(
    model: str, option: str, file: str, arguments: dict[str, Any], *, as_json: bool
) -> None:
    """Print the predictions of a file of instances; exit with 1 if one was refused."""
    from hyperplane.ml.prediction.local_prediction import predict_instances

    faults: list[Fault] = []
    lines = read_instances(option, file, faults)
    with stating_outcome("nothing was predicted"):
        found = predict_instances(model, lines, other_faults=faults, **arguments)
    if option == "--json-request":
        _print_response(found)
    elif as_json:
        write_json(
            {
                "predictions": [value for _, value in found.values],
                "errors": [{"row": number, "error": reason} for number, reason in found.errors],
            }
        )
    else:
        for _, value in found.values:
            typer.echo(json.dumps(value))
    if option != "--json-request":
        for number, reason in found.errors:
            typer.echo(f"line {number + 1}: {reason}", err=True)
    if found.errors:
        raise typer.Exit(1)


def read_instances(option: str, file: str, faults: list[Fault]) -> list[bytes]:
    """Return the instances of a file, or of ``-``, as lines of JSON; add a fault if it has none.

    ``option`` is the name of the option with the file, which says its format.
    """
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return _read_lines(option, data)
    except OSError as error:
        allowed = f"a file that can be read ({error.strerror})"
        faults.append(Fault(option, repr(file), allowed))
    except RequestError as error:
        faults += error.faults
    return []


def _read_lines(option: str, data: bytes) -> list[bytes]:
    """Return the instances of a file as lines of JSON."""
    if option == "--json-instances":
        return data.splitlines(keepends=True)
    from hyperplane.ml.serving.request_body import InvalidBody, parse_body

    try:
        if option == "--json-request":
            return [json.dumps(instance).encode() for instance in parse_body(data)]
        return [json.dumps(line).encode() for line in data.decode().splitlines()]
    except InvalidBody as error:
        raise RequestError([Fault(option, "this file", f"a request ({error})")]) from error
    except UnicodeDecodeError as error:
        raise RequestError([Fault(option, "this file", "text in UTF-8")]) from error


def _print_response(found: Predictions) -> None:
    """Print the response of a server."""
    from hyperplane.ml.serving.request_body import make_response

    typer.echo(json.dumps(make_response(found)))


@contextmanager
def _local_cluster(batch: PreparedBatch) -> Iterator[None]:
    """Start local worker processes if several files can be predicted at the same time."""
    count = min(len(batch.missing), batch.request.max_workers, count_threads())
    # Worker processes would not share the memory of memory://.
    if count < 2 or batch.request.output.store.protocol == "memory":
        yield
        return
    plan = hyperplane.plan_cluster(num_workers=1, nprocs=count, nthreads=1, engine="local")
    client, cluster = hyperplane.start(plan)
    try:
        yield
    finally:
        client.close()
        cluster.close()
