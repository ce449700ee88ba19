"""``hyperplane report``: one HTML file about a run, to send to others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hyperplane.cli.history import NameArgument, read_named
from hyperplane.cli.output import JsonOption, write_json
from hyperplane.history.store import LATEST
from hyperplane.reports import save_report


def report(
    name: NameArgument = LATEST,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FILE", help="The file; one that exists is replaced."),
    ] = Path("run.html"),
    as_json: JsonOption = False,
) -> None:
    """Write what a run took as one HTML file: pictures over the time, tables and advice."""
    record = read_named(name)
    file = save_report(record, out)
    if as_json:
        write_json({"run": record.name, "file": str(file)})
    else:
        typer.echo(f"wrote {file}, the report of {record.name}")
