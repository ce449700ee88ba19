"""``hyperplane serve``: answer requests for predictions over HTTP."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from hyperplane.cli.storage import parse_options
from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.public_calls import stating_outcome

_PANEL_REQUESTS = "Requests"


def serve(
    model: Annotated[
        str | None,
        typer.Argument(
            help="File or folder of a saved model; a model of a registry, as REGISTRY/NAME or "
            "REGISTRY/NAME/VERSION; with --registry the name of a model."
        ),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(help="Folder or URL of a registry; without MODEL all models are served."),
    ] = None,
    host: Annotated[
        str,
        typer.Option(help="Address to listen on; one for other machines requires a token."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 chooses a free one.")] = 8080,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File with the token that requests must have; by default the variable "
            "HYPERPLANE_SERVE_TOKEN.",
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Certificate of the server in PEM format, with its chain, for HTTPS.",
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Key of the certificate in PEM format, if in a separate file."
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help="Number of processes, each with the models.")] = 1,
    name: Annotated[
        str | None,
        typer.Option(
            help="Name of the service for get_service_url; by default that of the only model."
        ),
    ] = None,
    batch_size: Annotated[
        int,
        typer.Option(
            help="Maximum number of instances in one call of the model.",
            rich_help_panel=_PANEL_REQUESTS,
        ),
    ] = 64,
    batch_wait_ms: Annotated[
        float,
        typer.Option(
            help="Milliseconds that a request waits for others if its batch is not full.",
            metavar="MS",
            rich_help_panel=_PANEL_REQUESTS,
        ),
    ] = 0,
    max_body: Annotated[
        str,
        typer.Option(
            help="Maximum size of the body of a request.",
            metavar="SIZE",
            rich_help_panel=_PANEL_REQUESTS,
        ),
    ] = "10MB",
    max_instances: Annotated[
        int,
        typer.Option(
            help="Maximum number of instances of a request.", rich_help_panel=_PANEL_REQUESTS
        ),
    ] = 1000,
    trusted: Annotated[
        bool, typer.Option("--trusted", help="Load a model that can run code of its author.")
    ] = False,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="Option of the file system; may be repeated. See storage."
        ),
    ] = None,
) -> None:
    """Answer requests for predictions over HTTP until Ctrl-C or SIGTERM.

    POST /v1/models/NAME:predict with {"instances": [...]} returns {"predictions": [...]}.
    """
    from hyperplane.ml.serving.serve_settings import make_settings
    from hyperplane.ml.serving.server_process import ServeStop, run_server

    with stating_outcome("nothing is served"):
        settings = make_settings(
            model,
            registry=registry,
            host=host,
            port=port,
            token=None if token_file is None else _read_token(token_file),
            batch_size=batch_size,
            batch_wait_ms=batch_wait_ms,
            max_body=max_body,
            max_instances=max_instances,
            workers=workers,
            trusted=trusted,
            name=name,
            storage_options=parse_options(option or []) or None,
            certificate=None if certificate is None else str(certificate),
            key=None if key is None else str(key),
        )
        if settings.warning:
            typer.echo(f"warning: {settings.warning}", err=True)
        logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
        stop = ServeStop()
        stop.install()
        run_server(settings, _announce, stop)


def _announce(url: str, title: str, name: str | None) -> None:
    del name
    typer.echo(f"serving {title} at {url}")
    sys.stdout.flush()


def _read_token(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        allowed = f"a file that can be read ({reason})"
        raise RequestError([Fault("--token-file", repr(str(file)), allowed)]) from error
