"""``hyperplane metrics``: figures of jobs and clusters for Prometheus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hyperplane.core.errors import Fault, check
from hyperplane.jobs.store.jobs_home import open_store
from hyperplane.reports.prometheus_metrics import format_metrics
from hyperplane.reports.report_file import write_file


def metrics(
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE",
            help="Write this file, NAME.prom, in one step; standard output without it.",
        ),
    ] = None,
) -> None:  # fmt: skip
    """Print figures of this user's jobs and clusters on this machine, as Prometheus reads them.

    The textfile collector of Prometheus' node_exporter reads files *.prom in its folder: run this
    command there each minute.
    """
    if out is not None and out.suffix != ".prom":
        check([Fault("--out", str(out), "a file that ends in .prom, which node_exporter reads")])
    text = format_metrics(open_store())
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_file(out, text)
